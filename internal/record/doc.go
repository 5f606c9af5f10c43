// Package record defines what a run leaves behind: small JSON documents, written once each, from which
// the report, the ledger, replay and every later question about a run are answered.
//
// It holds types, names and checks only; the artifact store keeps the bytes. Absent numbers are null in
// JSON and nil here, never NaN or 0. All names are relative to "runs/<run>/<lineage>/", see Layout.
package record
