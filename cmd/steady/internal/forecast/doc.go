// Package forecast estimates how fast a run goes on a kind of GPU: tokens a second of training, decoding and prompts, the time of a step and of the run,
// and the disk that it fills. It measures nothing. Each rate is the limit of the hardware (operations or bandwidth of the data sheet) times the share of it
// that this engine reached on an H200, so on other cards it is a guess that a measurement should replace (`steady bench engine`). It may import measure,
// model and plan.
package forecast
