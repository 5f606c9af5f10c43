// Package ui shows the progress of a run: a few lines that are redrawn on a terminal, plain dated lines anywhere
// else. It also renders the table of validations. It is fed a State, knows nothing of workflows and imports
// nothing of this module.
package ui
