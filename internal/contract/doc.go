// Package contract is the one thing that workflows and activities share: names, task queues, messages and
// typed references to activities.
//
// Names and JSON tags are stored in histories, so they only ever grow: never rename, never change a
// meaning. A message carries references to bulk data, never the data; MaxMessage bounds it, and a test
// holds every message to it. The package may import internal/fault, internal/artifact and
// internal/record (for references and small records) and the SDK's workflow package.
package contract
