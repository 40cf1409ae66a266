package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"weir/bus/pki"
)

// kubernetesKinds are the kinds of objects in deploy/kubernetes, with the types of Kubernetes' own API.
var kubernetesKinds = map[string]func() any{
	"v1/Namespace": func() any { return &corev1.Namespace{} }, "v1/Service": func() any { return &corev1.Service{} },
	"v1/ConfigMap": func() any { return &corev1.ConfigMap{} }, "v1/PersistentVolumeClaim": func() any { return &corev1.PersistentVolumeClaim{} },
	"apps/v1/DaemonSet": func() any { return &appsv1.DaemonSet{} }, "apps/v1/Deployment": func() any { return &appsv1.Deployment{} },
	"apps/v1/StatefulSet": func() any { return &appsv1.StatefulSet{} }, "policy/v1/PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
}

// kubernetesObjects reads the objects of a file. A key that the API does not have is an error, and so is a value of another type.
func kubernetesObjects(text []byte) (out []any, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var plain map[string]any
		if err := d.Decode(&plain); err != nil {
			if len(out) == 0 {
				return nil, err
			}
			return out, nil
		}
		b, err := json.Marshal(plain)
		if err != nil {
			return nil, err
		}
		kind := fmt.Sprint(plain["apiVersion"], "/", plain["kind"])
		made := kubernetesKinds[kind]
		if made == nil {
			return nil, fmt.Errorf("an object of kind %s", kind)
		}
		o := made()
		strict := json.NewDecoder(bytes.NewReader(b))
		strict.DisallowUnknownFields()
		if err := strict.Decode(o); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		out = append(out, o)
	}
}

// podOwner is what a DaemonSet, a Deployment and a StatefulSet have in common.
type podOwner struct {
	name     string
	selector map[string]string
	pod      corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
}

func workloadOf(o any) *podOwner {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return &podOwner{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template, nil}
	case *appsv1.Deployment:
		return &podOwner{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template, nil}
	case *appsv1.StatefulSet:
		return &podOwner{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template, o.Spec.VolumeClaimTemplates}
	}
	return nil
}

// wrong returns what the API server would refuse, or what would not start.
func (w *podOwner) wrong() (out []string) {
	complain := func(format string, a ...any) { out = append(out, w.name+": "+fmt.Sprintf(format, a...)) }
	for k, v := range w.selector {
		if w.pod.Labels[k] != v {
			complain("the selector %s=%s does not select its pods", k, v)
		}
	}
	volumes := map[string]bool{}
	for _, v := range w.pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for i := range w.claims {
		volumes[w.claims[i].Name] = true
	}
	for i := range w.pod.Spec.Containers {
		c := &w.pod.Spec.Containers[i]
		used := map[string]bool{}
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
			if !volumes[m.Name] {
				complain("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		for v := range volumes {
			if !used[v] {
				complain("the volume %s is not mounted", v)
			}
		}
		s := c.SecurityContext
		if s == nil || s.Privileged != nil || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			complain("%s has more rights than it needs", c.Name)
		}
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if probe != nil && probe.TCPSocket != nil && !ports[probe.TCPSocket.Port.StrVal] {
				complain("a probe of %s asks port %q, which it does not have", c.Name, probe.TCPSocket.Port.StrVal)
			}
		}
		if cmd, rest, err := rootCommand().Find(c.Args); err != nil || cmd.ParseFlags(rest) != nil || !cmd.HasParent() {
			complain("%s has the arguments %q, which weir does not take: %v", c.Name, c.Args, err)
		}
	}
	return out
}

func readKubernetes(t *testing.T) (out []any) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		list, err := kubernetesObjects(text)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out = append(out, list...)
	}
	return out
}

// The objects are what Kubernetes' API has, and fit each other.
func TestKubernetes(t *testing.T) {
	objects := readKubernetes(t)
	workloads := map[string]*podOwner{}
	for _, o := range objects {
		if w := workloadOf(o); w != nil {
			workloads[w.name] = w
			for _, wrong := range w.wrong() {
				t.Error(wrong)
			}
		}
	}
	if len(workloads) != 3 {
		t.Fatalf("%d workloads", len(workloads))
	}
	for _, o := range objects {
		s, is := o.(*corev1.Service)
		if !is {
			continue
		}
		w := workloads[s.Name]
		if w == nil || len(s.Spec.Selector) == 0 || !mapsEqual(s.Spec.Selector, w.selector) {
			t.Errorf("the service %s selects no workload", s.Name)
		}
	}
	agent := workloads["weir-agent"].pod.Spec
	if !agent.HostNetwork || *agent.TerminationGracePeriodSeconds != 0 || !slices.Equal(agent.Containers[0].SecurityContext.Capabilities.Add, []corev1.Capability{"BPF", "PERFMON", "NET_ADMIN"}) {
		t.Errorf("the agent: %+v", agent)
	}
}

func mapsEqual(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// A check that finds no fault would show nothing.
func TestKubernetes_FindsFaults(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string][2]string{
		`unknown field "hostNetworks"`:         {"hostNetwork: true", "hostNetworks: true"},
		"cannot unmarshal":                     {"minReadySeconds: 10", "minReadySeconds: ten"},
		"an object of kind apps/v1/DaemonSets": {"kind: DaemonSet", "kind: DaemonSets"},
		"does not select its pods":             {"    metadata:\n      labels: {app.kubernetes.io/name: weir-agent}", "    metadata:\n      labels: {app: x}"},
		"mounts bpfs, which is no volume":      {"{name: bpf, mountPath", "{name: bpfs, mountPath"},
		"the volume bpf is not mounted":        {"            - {name: bpf, mountPath: /sys/fs/bpf}\n", ""},
		"more rights than it needs":            {"drop: [ALL]", "drop: [KILL]"},
		"the arguments":                        {`"--json"]`, `"--jason"]`},
	} {
		changed := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, text) {
			t.Errorf("%q is not in the file", change[0])
			continue
		}
		var found []string
		objects, err := kubernetesObjects(changed)
		if err != nil {
			found = append(found, err.Error())
		}
		for _, o := range objects {
			if w := workloadOf(o); w != nil {
				found = append(found, w.wrong()...)
			}
		}
		if !strings.Contains(strings.Join(found, "; "), says) {
			t.Errorf("%q: found %q, want %q", change[1], found, says)
		}
	}
}

// Each controller's file is valid, and its directory of keys is one that the volume makes: links to files of mode 0400.
func TestKubernetes_Controllers(t *testing.T) {
	dir := t.TempDir()
	ca := &pki.CA{Dir: filepath.Join(dir, "ca")}
	if err := ca.Create(); err != nil {
		t.Fatal(err)
	}
	var files map[string]string
	var items []corev1.KeyToPath
	replicas := 0
	for _, o := range readKubernetes(t) {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			files = o.Data
		case *appsv1.StatefulSet:
			replicas = int(*o.Spec.Replicas)
			for _, v := range o.Spec.Template.Spec.Volumes {
				if v.Secret != nil {
					items = v.Secret.Items
				}
			}
		}
	}
	secret := map[string][]byte{}
	for i := range replicas {
		name := fmt.Sprintf("c%d", i)
		out := filepath.Join(dir, name)
		if _, err := ca.Enrol(pki.Identity{Role: pki.Controller, Name: name}, out, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{name + ".pem", "ca.pem", "revoked"} {
			b, err := os.ReadFile(filepath.Join(out, f))
			if err != nil {
				t.Fatal(err)
			}
			secret[f] = b
		}
	}
	keys := filepath.Join(dir, "keys")
	for _, item := range items { // as the kubelet does it
		real, link := filepath.Join(keys, "..data", item.Path), filepath.Join(keys, item.Path)
		for _, d := range []string{filepath.Dir(real), filepath.Dir(link)} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if len(secret[item.Key]) == 0 && item.Key != "revoked" {
			t.Errorf("the secret has no %s", item.Key)
		}
		if err := os.WriteFile(real, secret[item.Key], 0o400); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, link); err != nil {
			t.Fatal(err)
		}
	}
	if len(files) != replicas {
		t.Errorf("%d files for %d controllers", len(files), replicas)
	}
	for i := range replicas {
		name := fmt.Sprintf("weir-controller-%d", i)
		text := strings.ReplaceAll(files[name+".yaml"], "/etc/weir/keys", keys)
		file := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"controller", "--check", "-f", file}, &stdout, &stderr); code != 0 || text == "" {
			t.Errorf("%s: %d %s%s", name, code, stdout.String(), stderr.String())
		}
	}
}
