//go:build cuda

package cudart

/*
#include <stdint.h>
#include <string.h>

// The driver's launch with attributes, in the layout of its documentation (graph.go has the same).
struct steady_tiles_attribute { int id, pad; union { char bytes[64]; int number; } value; };
struct steady_tiles_config { unsigned grid[3], block[3], shared; void *stream; struct steady_tiles_attribute *attributes; unsigned count; };

typedef int (*steady_encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int);

struct steady_tile { uint64_t at, dims[5], strides[4]; uint32_t box[5], rank; };

// Describes a matrix of BF16: rows of a box are 128 bytes, swizzled; what is outside becomes 0.
static int steady_encode_tile(uintptr_t encode, void *map, struct steady_tile *t) {
	const uint32_t ones[5] = {1, 1, 1, 1, 1};
	const int bf16 = 9, none = 0, swizzle128 = 3, promote256 = 3;
	return ((steady_encode)encode)(map, bf16, t->rank, (void *)t->at, t->dims, t->strides, t->box, ones, none, swizzle128, promote256, none);
}

// Starts f, whose first parameters are two maps; which, if not NULL, tells the map that could not be made.
static int steady_launch_tiles(uintptr_t launch, uintptr_t encode, void *f, unsigned gx, unsigned bx, unsigned shared, int early, void *stream,
		struct steady_tile *tiles, uint64_t *words, int n, int *which) {
	struct { _Alignas(64) char bytes[128]; } maps[2];
	void *params[26] = {&maps[0], &maps[1]};
	struct steady_tiles_attribute a;
	struct steady_tiles_config c = {{gx, 1, 1}, {bx, 1, 1}, shared, stream, &a, early ? 1 : 0};
	for (*which = 0; *which < 2; ++*which) {
		int code = steady_encode_tile(encode, &maps[*which], &tiles[*which]);
		if (code != 0) return code;
	}
	memset(&a, 0, sizeof a);
	a.id = 6; // programmatic stream serialization
	a.value.number = 1;
	for (int i = 0; i < n; i++) params[2 + i] = &words[i];
	return ((int (*)(struct steady_tiles_config *, void *, void **, void **))launch)(&c, f, params, NULL);
}
*/
import "C"

import (
	"fmt"

	"github.com/steadyrl/steady/internal/fault"
)

// TileShape describes a matrix of BF16 in device memory, of up to five dimensions, to the copy engine of Hopper, and the box of it that one copy takes. Dims are in
// elements, the first one without gaps; Strides are those of the others, in bytes, multiples of 16. A box is 64 elements wide.
type TileShape struct {
	At                 Ptr
	Dims, Strides, Box []int
}

// MapsTiles reports whether the driver can describe matrices to the copy engine and this GPU has one.
func (c *Context) MapsTiles() bool {
	e, err := extra()
	return err == nil && e.encodeTiled != 0 && e.launchEx != 0 && c.Major >= 9
}

// LaunchTiles is Launch for a kernel in one dimension whose first two parameters are the descriptions of matrices, by value. early lets it begin while the kernel
// before ends, as LaunchEarly does. It panics when there are more than 24 arguments or a shape is no shape (caller bugs).
func (c *Context) LaunchTiles(f *Function, grid, threads, shared int, early bool, shapes [2]TileShape, args ...Arg) error {
	const op = "cudart.LaunchTiles"
	e, err := extra()
	if err != nil {
		return err
	}
	if !c.MapsTiles() {
		return fault.New(fault.NotFound, op, "the driver or the GPU has no copies of tiles")
	}
	if grid == 0 {
		return nil
	}
	var words [maxArgs]C.uint64_t
	if len(args) > maxArgs {
		panic("cudart: too many kernel arguments")
	}
	for i, a := range args {
		words[i] = C.uint64_t(a)
	}
	var tiles [2]C.struct_steady_tile
	for i, s := range shapes {
		t := &tiles[i]
		if len(s.Dims) > len(t.dims) || len(s.Strides) != len(s.Dims)-1 || len(s.Box) != len(s.Dims) {
			panic("cudart: a shape of tiles without as many strides and sides as it has dimensions")
		}
		t.at, t.rank = C.uint64_t(s.At), C.uint32_t(len(s.Dims)) //nolint:gosec // at most 5
		for j := range s.Dims {
			t.dims[j], t.box[j] = C.uint64_t(s.Dims[j]), C.uint32_t(s.Box[j]) //nolint:gosec // sizes
		}
		for j := range s.Strides {
			t.strides[j] = C.uint64_t(s.Strides[j]) //nolint:gosec // as above
		}
	}
	begin, which := C.int(0), C.int(0)
	if early {
		begin = 1
	}
	code := C.steady_launch_tiles(C.uintptr_t(e.launchEx), C.uintptr_t(e.encodeTiled), f.handle(), C.unsigned(grid), C.unsigned(threads), C.unsigned(shared), begin,
		c.streamPtr(), &tiles[0], &words[0], C.int(len(args)), &which)
	switch {
	case code == 0:
		return nil
	case which < 2:
		return fault.New(fault.Internal, op, "%s: the driver does not take the matrix %+v (CUDA error %d)", f.name, shapes[which], int(code))
	}
	return fmt.Errorf("%s on %d blocks of %d: %w", f.name, grid, threads, driverCode(op, int(code)))
}
