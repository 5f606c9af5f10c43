// Package cudart reaches NVIDIA's libraries without any file of NVIDIA at build time: the driver (through gorgonia.org/cu), NVRTC,
// cuBLASLt and cuDNN (attention in both directions). All code is behind the build tag cuda; `make build-cuda` sets the flags that it needs.
//
// The driver's header is include/cuda.h, declared from the documented ABI; the library -lcuda is standin/libcuda.c, which opens the
// real one when Load is called. So the binary starts on any machine, and Load says what is missing. Other libraries are opened by
// Open and called through one trampoline for functions whose arguments are integers and pointers.
//
// Device memory and launches belong to one goroutine that has locked its thread and called Context.Use. The package computes nothing and knows no
// model. It reads no environment: paths come from the caller. Callers: engine/cuda, cmd/steady (doctor).
package cudart
