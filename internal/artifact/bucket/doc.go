// Package bucket is the artifact store on S3-compatible object storage, with what the store of files promises.
//
// An object is one S3 object, written by a conditional request (If-None-Match: *), so the first writer wins; its SHA-256 is in its
// metadata and is compared at every read. A directory (checkpoint, data set, export) is a set of objects below a folder that is
// named by its content, and one small object, its list, that makes it appear at once. Local copies of directories lie in a cache; they are
// compared with the digests of the list whenever they are used.
//
// Parts of keys that begin with "@" are the store's own, which no name of an object can have:
//
//	@steady.json             the store: written with the first opening
//	NAME/@dir.json           the list of a directory
//	NAME/@g-DIGEST/FILE      its files
//	NAME/@set-aside.json     the list of a directory that was set aside
//
// Credentials come from the standard AWS environment and nowhere else. The package may import internal/artifact, durable and fault.
package bucket
