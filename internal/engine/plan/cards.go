package plan

import (
	"strings"

	"github.com/steadyrl/steady/internal/fault"
	"github.com/steadyrl/steady/internal/model"
)

// Card is a kind of GPU.
type Card struct {
	Name string `json:"name"`
	// MiB is the memory that the driver reports as the card's total (nvidia-smi, memory.total), in MiB; drivers differ by a few hundred.
	MiB int `json:"memory_mib"`
	// Bandwidth of memory in bytes a second, and BF16 operations a second with sums in float32 and without sparsity: both as the maker's data sheet says.
	Bandwidth  float64 `json:"bandwidth"`
	Operations float64 `json:"operations"`
}

// Bytes is the card's memory.
func (c Card) Bytes() int { return c.MiB << 20 }

// CardSource says where the figures of Cards are from.
const CardSource = "NVIDIA's data sheets (bandwidth; BF16 dense, sums in float32); memory as nvidia-smi reports it"

// Cards lists the known kinds, largest memory first. Of the H200 only, rates were measured with this engine.
func Cards() []Card {
	return []Card{
		{"B200", 183359, 8.0e12, 2250e12},
		{"H200", 143771, 4.8e12, 989e12},
		{"RTX-PRO-6000", 97887, 1.792e12, 503e12},
		{"A100-80GB", 81920, 2.039e12, 312e12},
		{"H100-80GB", 81559, 3.35e12, 989e12},
		{"H100-PCIe", 81559, 2.0e12, 756e12},
		{"L40S", 46068, 0.864e12, 362e12},
		{"A100-40GB", 40960, 1.555e12, 312e12},
		{"RTX-5090", 32607, 1.792e12, 209.5e12},
		{"RTX-4090", 24564, 1.008e12, 165.2e12},
		{"A10", 23028, 0.6e12, 125e12},
		{"L4", 23034, 0.3e12, 121e12},
	}
}

// CardNamed returns the card of a name; case, spaces, dashes and the words NVIDIA and GeForce do not count, and a name may end where another has its
// memory (H100 is H100-80GB). Errors: NotFound, with the names that there are.
func CardNamed(name string) (Card, error) {
	short := func(s string) string {
		s = strings.ToLower(s)
		for _, drop := range []string{"nvidia", "geforce", " ", "-", "_", "sxm"} {
			s = strings.ReplaceAll(s, drop, "")
		}
		return s
	}
	var names []string
	for _, c := range Cards() {
		if short(c.Name) == short(name) {
			return c, nil
		}
		names = append(names, c.Name)
	}
	for _, c := range Cards() {
		if strings.HasSuffix(c.Name, "0GB") && short(name) != "" && short(c.Name[:strings.LastIndexByte(c.Name, '-')]) == short(name) {
			return c, nil
		}
	}
	return Card{}, fault.New(fault.NotFound, "plan.CardNamed", "no card named %q is known", name).
		WithHint("cards are %s; give another one by --memory in GiB", strings.Join(names, ", "))
}

// qwen3 is a published dense model of the family.
func qwen3(layers, hidden, heads, intermediate int, tied bool) model.Config {
	return model.Config{
		Vocab: 151936, Hidden: hidden, Layers: layers, Heads: heads, KVHeads: 8, HeadDim: 128, Intermediate: intermediate, MaxPosition: 40960, RMSEps: 1e-6,
		RopeTheta: 1e6, TieEmbedding: tied,
	}
}

// Size is a published model by the name of its size.
type Size struct {
	Name  string
	Model model.Config
}

// Qwen3 lists the dense Qwen3 models, smallest first, as their config.json describes them.
func Qwen3() []Size {
	return []Size{
		{"0.6B", qwen3(28, 1024, 16, 3072, true)},
		{"1.7B", qwen3(28, 2048, 16, 6144, true)},
		{"4B", qwen3(36, 2560, 32, 9728, true)},
		{"8B", qwen3(36, 4096, 32, 12288, false)},
		{"14B", qwen3(40, 5120, 40, 17408, false)},
	}
}

// SizeNamed returns the Qwen3 model of a size; Qwen3-4B and 4b are 4B. Errors: NotFound, with the sizes that there are.
func SizeNamed(name string) (Size, error) {
	short := strings.TrimPrefix(strings.TrimPrefix(strings.ToUpper(name), "QWEN/"), "QWEN3-")
	var names []string
	for _, s := range Qwen3() {
		if s.Name == short {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Size{}, fault.New(fault.NotFound, "plan.SizeNamed", "no Qwen3 model of size %q is known", name).
		WithHint("sizes are %s; of another model give its directory", strings.Join(names, ", "))
}
