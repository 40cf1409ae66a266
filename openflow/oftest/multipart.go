package oftest

import (
	"pgregory.net/rapid"

	of "weir/openflow"
)

type bodies = *rapid.Generator[of.MultipartBody]

func body[V of.MultipartBody](m *maker) bodies {
	return rapid.Map(value[V](m), func(v V) of.MultipartBody { return v })
}

func none() bodies { return rapid.Just[of.MultipartBody](nil) }

// requests draws a multipart request of each kind as often as of the others.
func (m *maker) requests() *rapid.Generator[of.Message] {
	by := map[of.MultipartType]bodies{
		of.MultipartDesc:          none(),
		of.MultipartFlow:          body[of.FlowStatsRequest](m),
		of.MultipartAggregate:     body[of.AggregateStatsRequest](m),
		of.MultipartTable:         none(),
		of.MultipartPortStats:     body[of.PortStatsRequest](m),
		of.MultipartQueue:         body[of.QueueStatsRequest](m),
		of.MultipartGroup:         body[of.GroupStatsRequest](m),
		of.MultipartGroupDesc:     none(),
		of.MultipartGroupFeatures: none(),
		of.MultipartMeter:         body[of.MeterStatsRequest](m),
		of.MultipartMeterConfig:   body[of.MeterConfigRequest](m),
		of.MultipartMeterFeatures: none(),
		of.MultipartTableFeatures: m.tableFeatures(),
		of.MultipartPortDesc:      none(),
		of.MultipartExperimenter:  body[of.MultipartExperiment](m),
	}
	types := kinds(by)
	return rapid.Custom(func(t *rapid.T) of.Message {
		typ := types.Draw(t, "kind")
		return &of.MultipartRequest{Type: typ, More: rapid.Bool().Draw(t, "more"), Body: by[typ].Draw(t, "body")}
	})
}

// replies draws a multipart reply likewise.
func (m *maker) replies() *rapid.Generator[of.Message] {
	by := map[of.MultipartType]bodies{
		of.MultipartDesc:          rapid.Map(value[of.DescReply](m), func(v of.DescReply) of.MultipartBody { return &v }),
		of.MultipartFlow:          body[of.FlowStatsReply](m),
		of.MultipartAggregate:     body[of.AggregateStatsReply](m),
		of.MultipartTable:         body[of.TableStatsReply](m),
		of.MultipartPortStats:     body[of.PortStatsReply](m),
		of.MultipartQueue:         body[of.QueueStatsReply](m),
		of.MultipartGroup:         body[of.GroupStatsReply](m),
		of.MultipartGroupDesc:     body[of.GroupDescReply](m),
		of.MultipartGroupFeatures: body[of.GroupFeaturesReply](m),
		of.MultipartMeter:         body[of.MeterStatsReply](m),
		of.MultipartMeterConfig:   body[of.MeterConfigReply](m),
		of.MultipartMeterFeatures: body[of.MeterFeaturesReply](m),
		of.MultipartTableFeatures: m.tableFeatures(),
		of.MultipartPortDesc:      body[of.PortDescReply](m),
		of.MultipartExperimenter:  body[of.MultipartExperiment](m),
	}
	types := kinds(by)
	return rapid.Custom(func(t *rapid.T) of.Message {
		typ := types.Draw(t, "kind")
		return &of.MultipartReply{Type: typ, More: rapid.Bool().Draw(t, "more"), Body: by[typ].Draw(t, "body")}
	})
}

// kinds draws a kind; their order is fixed, so that a seed means the same messages again.
func kinds(by map[of.MultipartType]bodies) *rapid.Generator[of.MultipartType] {
	types := make([]of.MultipartType, 0, len(by))
	for t := range by {
		types = append(types, t)
	}
	return rapid.SampledFrom(sorted(types))
}

func (m *maker) tableFeatures() bodies {
	one := value[of.TableFeature](m)
	return rapid.Custom(func(t *rapid.T) of.MultipartBody {
		return of.TableFeatures(rapid.SliceOfN(one, 0, 3).Draw(t, "tables"))
	})
}

// tableProperty draws a property with the list of its type alone.
func tableProperty(t *rapid.T) of.TableProperty {
	p := of.TableProperty{Type: rapid.SampledFrom([]of.TablePropertyType{
		of.TableInstructions, of.TableInstructionsMiss, of.TableNextTables, of.TableNextTablesMiss, of.TableWriteActions,
		of.TableWriteActionsMiss, of.TableApplyActions, of.TableApplyActionsMiss, of.TableMatch, of.TableWildcards,
		of.TableWriteSetField, of.TableWriteSetFieldMiss, of.TableApplySetField, of.TableApplySetFieldMiss,
		of.TableExperimenter, of.TableExperimenterMiss,
	}).Draw(t, "property")}
	switch p.Type {
	case of.TableInstructions, of.TableInstructionsMiss:
		for _, typ := range rapid.SliceOfN(rapid.SampledFrom(instructionTypes), 0, 7).Draw(t, "instructions") {
			id := of.InstructionID{Type: typ}
			if typ == of.InstructionTypeExperimenter {
				id.Experimenter = rapid.Uint32().Draw(t, "experimenter")
			}
			p.Instructions = append(p.Instructions, id)
		}
	case of.TableNextTables, of.TableNextTablesMiss:
		p.NextTables = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) of.TableID { return of.TableID(rapid.Uint8().Draw(t, "table")) }), 0, 20).Draw(t, "tables")
	case of.TableWriteActions, of.TableWriteActionsMiss, of.TableApplyActions, of.TableApplyActionsMiss:
		for _, typ := range rapid.SliceOfN(rapid.SampledFrom(actionTypes), 0, 17).Draw(t, "actions") {
			id := of.ActionID{Type: typ}
			if typ == of.ActionTypeExperimenter {
				id.Experimenter = rapid.Uint32().Draw(t, "experimenter")
			}
			p.Actions = append(p.Actions, id)
		}
	case of.TableExperimenter, of.TableExperimenterMiss:
		p.Experimenter, p.ExpType = rapid.Uint32().Draw(t, "experimenter"), rapid.Uint32().Draw(t, "exp_type")
		p.Data = hexBytes(20).Draw(t, "data")
	default:
		for _, id := range rapid.SliceOfN(rapid.SampledFrom(of.Fields()), 0, 20).Draw(t, "fields") {
			h := of.FieldHeader{ID: id, HasMask: id.CanMask() && rapid.Bool().Draw(t, "mask"), Length: uint8(id.Bytes())}
			if h.HasMask {
				h.Length *= 2
			}
			if id.Class() == of.ClassExperimenter {
				h.Length += 4
			}
			p.Fields = append(p.Fields, h)
		}
	}
	return p
}
