// Package lcb reads the problem files of LiveCodeBench (code_generation_lite): JSON Lines of which single lines can have hundreds of megabytes.
//
// Read goes through a file line by line and keeps the small fields; tests are skipped without being held, unless they are asked
// for. Private tests are stored as JSON, or as JSON compressed by zlib, or as a Python pickle of one string of JSON
// compressed by zlib, the last two in base64. Pickles are programs; the reader here knows the few instructions that make one
// string and refuses all others, so nothing in a file is ever run. What is inflated is bounded.
//
// The package imports dataset for identities and fault for errors.
package lcb
