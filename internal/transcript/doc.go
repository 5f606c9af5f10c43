// Package transcript makes single trajectories of a run readable: as text, as an HTML page, as a JSON object.
//
// It finds them through the records that the run leaves: training groups through the ledger and the sealed batches,
// validations through their own record. It reads and never writes to the store. The words of the model and of its programs
// are shown, never interpreted: control characters are spelled out in text, and everything is escaped in HTML.
//
// The package may import artifact, batch, fault, ledger, record, tokenizer and trajectory.
package transcript
