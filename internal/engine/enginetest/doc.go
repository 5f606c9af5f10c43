// Package enginetest is the one conformance suite of engines: Run drives a backend through the interfaces of
// package engine and compares it with the oracle in package ref.
//
// Every tolerance says where it comes from. A backend that passes can be put behind the product without any other change.
package enginetest
