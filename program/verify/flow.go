package verify

import "capgpu/program"

func (v *verifier) flow() *program.Refusal { return nil }
