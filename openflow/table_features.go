package openflow

import "slices"

// TableFeatures has the features of tables; in a request, the wanted features (specification 7.3.5.5).
type TableFeatures []TableFeature

// TableFeature describes one table (ofp_table_features).
type TableFeature struct {
	TableID       TableID         `json:"table_id"`
	Name          string          `json:"name"` // at most 32 bytes, without NUL
	MetadataMatch uint64          `json:"metadata_match"`
	MetadataWrite uint64          `json:"metadata_write"`
	Config        uint32          `json:"config"`
	MaxEntries    uint32          `json:"max_entries"`
	Properties    []TableProperty `json:"properties"`
}

const (
	tableNameLen    = 32
	tableFeatureLen = 64
)

// MultipartType returns MultipartTableFeatures.
func (TableFeatures) MultipartType() MultipartType { return MultipartTableFeatures }

func (fs TableFeatures) append(b []byte, _ bool) ([]byte, error) {
	var err error
	for i := 0; i < len(fs) && err == nil; i++ {
		b, err = fs[i].append(b)
	}
	return b, err
}

func (f *TableFeature) append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, byte(f.TableID))
	b, err := appendText(appendZeros(b, 5), f.Name, tableNameLen, "table.name")
	if err != nil {
		return b, err
	}
	b = be.AppendUint64(b, f.MetadataMatch)
	b = be.AppendUint64(b, f.MetadataWrite)
	b = be.AppendUint32(b, f.Config)
	b = be.AppendUint32(b, f.MaxEntries)
	for i := range f.Properties {
		if b, err = f.Properties[i].append(b); err != nil {
			return b, err
		}
	}
	return putLength(b, start, start, "table features")
}

func (c *cursor) tableFeatures() TableFeatures {
	fs := TableFeatures{}
	for c.more() {
		e := c.sized("table_features.length", tableFeatureLen, 8)
		if c.err != nil {
			break
		}
		f := TableFeature{TableID: TableID(e.u8("table_id"))}
		e.pad(5)
		f.Name = e.text("name", tableNameLen)
		f.MetadataMatch = e.u64("metadata_match")
		f.MetadataWrite = e.u64("metadata_write")
		f.Config = e.u32("config")
		f.MaxEntries = e.u32("max_entries")
		for e.more() {
			if n := len(f.Properties); n == cap(f.Properties) { // doubles, so that a long list of short ones costs less
				f.Properties = slices.Grow(f.Properties, max(n, 4))
			}
			f.Properties = append(f.Properties, e.tableProperty())
		}
		c.join(&e)
		fs = append(fs, f)
	}
	return fs
}
