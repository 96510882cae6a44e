package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// refuse names what the file asks for and the engine does not do.
func (j *configJSON) refuse() error {
	switch {
	case len(j.Architectures) == 0:
		return fmt.Errorf("no field %q", "architectures")
	case len(j.Architectures) != 1 || j.Architectures[0] != architecture:
		return fmt.Errorf("architectures %q is not supported, want %s", j.Architectures, architecture)
	case !isNull(j.QuantizationConfig):
		return errors.New("quantization_config is not supported: want float32, bfloat16 or float16 weights")
	case j.AttentionBias:
		return errors.New("attention_bias true is not supported")
	case j.HiddenAct == nil:
		return fmt.Errorf("no field %q", "hidden_act")
	case *j.HiddenAct != "silu":
		return fmt.Errorf("hidden_act %q is not supported, want silu", *j.HiddenAct)
	case j.UseSlidingWindow && j.SlidingWindow != nil:
		return fmt.Errorf("use_sliding_window with sliding_window %d is not supported", *j.SlidingWindow)
	case !isNull(j.RopeScaling) && !plainRope(j.RopeScaling):
		return fmt.Errorf("rope_scaling %.80s is not supported, want null", j.RopeScaling)
	case j.PartialRotaryFactor != nil && *j.PartialRotaryFactor != 1:
		return fmt.Errorf("partial_rotary_factor %v is not supported, want 1", *j.PartialRotaryFactor)
	}
	for i, kind := range j.LayerTypes {
		if kind != "full_attention" {
			return fmt.Errorf("layer_types[%d] %q is not supported, want full_attention", i, kind)
		}
	}
	return nil
}

type ropeJSON struct {
	RopeType            *string  `json:"rope_type"`
	Type                *string  `json:"type"` // older name
	RopeTheta           *float64 `json:"rope_theta"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`
}

// plainRope says whether the parameters are those of unscaled rotary positions over the whole head.
func plainRope(raw json.RawMessage) bool {
	var r ropeJSON
	if json.Unmarshal(raw, &r) != nil {
		return false
	}
	kind := r.RopeType
	if kind == nil {
		kind = r.Type
	}
	return (kind == nil || *kind == "default") && (r.PartialRotaryFactor == nil || *r.PartialRotaryFactor == 1)
}

// ropeTheta is in rope_parameters in newer files and a field of its own in older ones.
func (j *configJSON) ropeTheta() (float64, error) {
	var inner *float64
	if !isNull(j.RopeParameters) {
		if !plainRope(j.RopeParameters) {
			return 0, fmt.Errorf("rope_parameters %.80s is not supported, want rope_type default", j.RopeParameters)
		}
		var r ropeJSON
		if err := json.Unmarshal(j.RopeParameters, &r); err != nil {
			return 0, fmt.Errorf("rope_parameters: %w", err)
		}
		inner = r.RopeTheta
	}
	switch {
	case inner != nil && j.RopeTheta != nil && *inner != *j.RopeTheta:
		return 0, fmt.Errorf("rope_theta is %v, but %v in rope_parameters", *j.RopeTheta, *inner)
	case inner != nil:
		return *inner, nil
	case j.RopeTheta != nil:
		return *j.RopeTheta, nil
	}
	return 0, fmt.Errorf("no field %q, nor one in rope_parameters", "rope_theta")
}

// tokenIDs reads eos_token_id: a number, a list of numbers, or nothing.
func tokenIDs(raw json.RawMessage) ([]int32, error) {
	if isNull(raw) {
		return nil, nil
	}
	var ids []int64
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &ids); err != nil {
			return nil, fmt.Errorf("eos_token_id %.80s is not a list of numbers", raw)
		}
	} else {
		var id int64
		if err := json.Unmarshal(raw, &id); err != nil {
			return nil, fmt.Errorf("eos_token_id %.80s is not a number", raw)
		}
		ids = []int64{id}
	}
	out := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("eos_token_id %d is not a token id", id)
		}
		out[i] = int32(id)
	}
	return out, nil
}

// jsonError adds where it went wrong.
func jsonError(err error, size int) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("JSON, byte %d of %d: %w", syntax.Offset, size, err)
	case errors.As(err, &kind):
		return fmt.Errorf("JSON, byte %d of %d: field %q is a %s, want %s", kind.Offset, size, kind.Field, kind.Value, kind.Type)
	}
	return fmt.Errorf("JSON: %w", err)
}
