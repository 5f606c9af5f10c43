// Package plan is the memory layout of the engine cuda: how large every array is that its sampler and its trainer place on a GPU, by class. The engine
// allocates by these functions (build tag cuda), and `steady plan` adds them up before anything is loaded; so what is planned is what is taken. It
// also knows cards by their memory and speed. It allocates nothing and needs no GPU.
//
// What no arithmetic gives is an estimate and named so: the driver's context with the libraries' code (Context), and the workspace that cuDNN asks for.
//
// All sizes are bytes; padding is counted. Functions are pure. It may import fault and model.
package plan
