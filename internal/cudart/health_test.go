//go:build cuda

package cudart

import "testing"

// A card is found by its UUID wherever NVML lists it, and never by the driver's number: with CUDA_VISIBLE_DEVICES or a UUID that number is 0 for any card.
func TestHealthOf_findsACardByItsUUIDInAnyOrder(t *testing.T) {
	a, b, c := Health{UUID: "GPU-a", Name: "A", MemoryTotal: 1}, Health{UUID: "GPU-b", Name: "B", MemoryTotal: 2}, Health{Name: "does not say its UUID"}
	for name, gpus := range map[string][]Health{"one": {b}, "first": {b, a}, "last": {a, c, b}, "middle": {c, b, a}} {
		if g, found := HealthOf(gpus, "GPU-b"); !found || g != b {
			t.Errorf("%s: %+v, found %v; want %+v", name, g, found, b)
		}
	}
	for _, uuid := range []string{"", "GPU-d", "MIG-b"} {
		if g, found := HealthOf([]Health{a, c, b}, uuid); found {
			t.Errorf("%q: found %+v", uuid, g)
		}
	}
}
