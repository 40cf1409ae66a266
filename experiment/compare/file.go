package compare

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// FileChange is one value in which the experiment files differ; "" if a file does not set it.
type FileChange struct {
	Key string `json:"key"` // network.rate, traffic.mice.size
	A   string `json:"a"`
	B   string `json:"b"`
}

// notRun lists the keys of a file that do not change a run, or that are shown with the runs: worlds, axes and
// seeds. Windows are not listed: they do not change a run, but they change the meaning of a window's metrics.
var notRun = []string{"claims", "figures", "notes", "paper", "ids", "worlds", "seeds", "vary"}

// fileChanges lists the differences of two experiment files that affect the runs.
func fileChanges(a, b json.RawMessage) []FileChange {
	x, y := flat(a), flat(b)
	keys := maps.Clone(x)
	maps.Copy(keys, y)
	out := []FileChange{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if x[k] != y[k] {
			out = append(out, FileChange{k, x[k], y[k]})
		}
	}
	return out
}

// flat returns the values of a file by their keys; list entries with a name use it as a key.
func flat(file json.RawMessage) map[string]string {
	out := map[string]string{}
	var top map[string]any
	if json.Unmarshal(file, &top) != nil {
		return out
	}
	for _, k := range notRun {
		delete(top, k)
	}
	if lab, ok := top["lab"].(map[string]any); ok {
		delete(lab, "seeds")
	}
	schemes, _ := top["schemes"].([]any)
	for _, s := range schemes {
		if scheme, ok := s.(map[string]any); ok {
			delete(scheme, "worlds")
		}
	}
	flatten(out, "", top)
	return out
}

func flatten(into map[string]string, at string, v any) {
	below := func(key string) string {
		if at == "" {
			return key
		}
		return at + "." + key
	}
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			flatten(into, below(k), inner)
		}
	case []any:
		for i, inner := range v {
			key := strconv.Itoa(i)
			if m, ok := inner.(map[string]any); ok {
				if name, ok := m["name"].(string); ok {
					key = name
				}
			}
			flatten(into, below(key), inner)
		}
	case string:
		into[at] = v
	case nil:
	default:
		text, err := json.Marshal(v)
		if err == nil { // it was parsed from JSON
			into[at] = string(text)
		}
	}
}
