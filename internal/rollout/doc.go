// Package rollout makes one trajectory from a problem: how it begins, what it is sampled with, and its files, from which it goes on
// after a kill. Training, validation and evaluation use it, so that all three sample alike.
package rollout
