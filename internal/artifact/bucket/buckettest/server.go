// Package buckettest is an S3-compatible server in memory for tests: the requests that package bucket makes, and faults on demand. It is strict where
// a mistake would lose data, and knows no users beyond one key.
package buckettest

import (
	"bufio"
	"crypto/md5" //nolint:gosec // what the protocol calls an ETag
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket, KeyID and Secret are what the server knows.
const (
	Bucket = "bucket"
	KeyID  = "TESTKEYID"
	Secret = "not/a+secret"
)

// Fault is an answer in the place of the right one.
type Fault struct {
	Status int
	Code   string
	// After lets the request happen first: the answer is lost.
	After bool
	// Cut ends the connection after so many bytes of a body that is read, or at once if there is none.
	Cut int
}

// Server is the server. Its fields may be changed between requests only.
type Server struct {
	URL string
	// Intercept decides about a request, by its operation: PutObject, GetObject, HeadObject, DeleteObject, DeleteObjects, ListObjectsV2, CreateMultipartUpload,
	// UploadPart, CompleteMultipartUpload, AbortMultipartUpload, ListMultipartUploads. nil for the right answer.
	Intercept func(op, key string) *Fault
	// Careless ignores If-None-Match, as old servers do.
	Careless bool

	mu      sync.Mutex
	gone    bool
	objects map[string]object
	uploads map[string]*upload
	next    int
}

type object struct {
	data []byte
	meta string
	time time.Time
}

type upload struct {
	key, meta string
	algorithm string // of the checksums of its parts
	parts     map[int][]byte
	sums      map[int]string
	begun     time.Time
}

// New starts a server that ends with the test, and gives the test's process its credentials.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string]object{}, uploads: map[string]*upload{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Environment are the variables of a process that may use the server, and no other source of credentials.
func Environment() map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": KeyID, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
	}
}

// Address is that of a store.
func (s *Server) Address(prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?endpoint=" + s.URL
}

// Keys lists all keys, sorted.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted("")
}

// Uploads counts the unfinished uploads.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Age makes everything older.
func (s *Server) Age(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		o.time = o.time.Add(-by)
		s.objects[k] = o
	}
	for _, u := range s.uploads {
		u.begun = u.begun.Add(-by)
	}
}

// Date gives an object a time. It reports whether there is one.
func (s *Server) Date(key string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if ok {
		o.time = at
		s.objects[key] = o
	}
	return ok
}

// Damage changes the bytes of an object behind the store's back.
func (s *Server) Damage(key string, f func(data []byte) []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	o.data = f(slices.Clone(o.data))
	s.objects[key] = o
	return ok
}

// Drop lets the bucket disappear, or come back.
func (s *Server) Drop(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

func (s *Server) sorted(prefix string) []string {
	var keys []string
	for k := range s.objects {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func operation(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("delete"):
		return "DeleteObjects"
	case r.Method == http.MethodPost && q.Has("uploads"):
		return "CreateMultipartUpload"
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return "CompleteMultipartUpload"
	case r.Method == http.MethodPut && q.Has("uploadId"):
		return "UploadPart"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "AbortMultipartUpload"
	case r.Method == http.MethodGet && q.Has("uploads"):
		return "ListMultipartUploads"
	case r.Method == http.MethodGet && q.Get("list-type") == "2":
		return "ListObjectsV2"
	case key == "":
		return r.Method + " of a bucket"
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodGet:
		return "GetObject"
	case r.Method == http.MethodHead:
		return "HeadObject"
	case r.Method == http.MethodDelete:
		return "DeleteObject"
	}
	return r.Method
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	op := operation(r, key)
	body, err := payload(r)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, "IncompleteBody")
		return
	}
	var f *Fault
	if s.Intercept != nil {
		f = s.Intercept(op, key)
	}
	if f != nil && f.After {
		s.serve(httptest.NewRecorder(), r, bucket, op, key, body)
	}
	switch {
	case f == nil:
		s.serve(w, r, bucket, op, key, body)
	case f.Status != 0:
		refuse(w, r, f.Status, f.Code)
	default:
		s.cut(w, r, bucket, op, key, body, f)
	}
}

// cut ends the connection in the middle of an answer.
func (s *Server) cut(w http.ResponseWriter, r *http.Request, bucket, op, key string, body []byte, f *Fault) {
	if f.Cut > 0 {
		rec := httptest.NewRecorder()
		s.serve(rec, r, bucket, op, key, body)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes()[:min(f.Cut, rec.Body.Len())])
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
	}
	panic(http.ErrAbortHandler)
}

// payload reads the body of a request, also in the chunks of this protocol.
func payload(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var out []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return out, nil
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		out = append(out, chunk[:n]...)
	}
}

func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v)
}

func etag(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // see above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, bucket, op, key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	switch {
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+KeyID+"/"):
		refuse(w, r, http.StatusForbidden, "InvalidAccessKeyId")
		return
	case bucket != Bucket || s.gone:
		refuse(w, r, http.StatusNotFound, "NoSuchBucket")
		return
	}
	meta := r.Header.Get("X-Amz-Meta-Sha256")
	taken := func() bool {
		_, ok := s.objects[key]
		return ok && r.Header.Get("If-None-Match") == "*" && !s.Careless
	}
	up := s.uploads[q.Get("uploadId")]
	if q.Has("uploadId") && (up == nil || up.key != key) {
		refuse(w, r, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch op {
	case "PutObject":
		if taken() {
			refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		s.objects[key] = object{body, meta, time.Now()}
		w.Header().Set("ETag", etag(body))
	case "GetObject", "HeadObject":
		s.get(w, r, key)
	case "DeleteObject":
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case "DeleteObjects":
		var in struct {
			Object []struct{ Key string }
		}
		if xml.Unmarshal(body, &in) != nil || len(in.Object) > 1000 { // what the protocol allows
			refuse(w, r, http.StatusBadRequest, "MalformedXML")
			return
		}
		for _, o := range in.Object {
			delete(s.objects, o.Key)
		}
		answer(w, struct {
			XMLName xml.Name `xml:"DeleteResult"`
		}{})
	case "ListObjectsV2":
		s.list(w, r)
	case "CreateMultipartUpload":
		s.next++
		id := fmt.Sprintf("upload-%d", s.next)
		s.uploads[id] = &upload{
			key: key, meta: meta, algorithm: r.Header.Get("X-Amz-Checksum-Algorithm"), parts: map[int][]byte{}, sums: map[int]string{}, begun: time.Now(),
		}
		answer(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string   //nolint:staticcheck // the protocol's spelling
		}{UploadId: id})
	case "UploadPart":
		n, _ := strconv.Atoi(q.Get("partNumber"))
		sum := r.Header.Get("X-Amz-Checksum-Crc32")
		if (sum == "") != (up.algorithm == "") {
			refuse(w, r, http.StatusBadRequest, "InvalidRequest")
			return
		}
		up.parts[n], up.sums[n] = body, sum
		w.Header().Set("ETag", etag(body))
		if sum != "" {
			w.Header().Set("X-Amz-Checksum-Crc32", sum)
		}
	case "CompleteMultipartUpload":
		if taken() {
			refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		s.complete(w, r, up, body, q.Get("uploadId"))
	case "AbortMultipartUpload":
		delete(s.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case "ListMultipartUploads":
		s.listUploads(w, q.Get("prefix"))
	default:
		refuse(w, r, http.StatusNotImplemented, "NotImplemented")
	}
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request, up *upload, body []byte, id string) {
	var in struct {
		Part []struct {
			PartNumber    int
			ETag          string
			ChecksumCRC32 string
		}
	}
	if xml.Unmarshal(body, &in) != nil {
		refuse(w, r, http.StatusBadRequest, "MalformedXML")
		return
	}
	var data []byte
	for i, p := range in.Part {
		part, ok := up.parts[p.PartNumber]
		if !ok || p.ETag != etag(part) || p.ChecksumCRC32 != up.sums[p.PartNumber] || i > 0 && p.PartNumber <= in.Part[i-1].PartNumber {
			refuse(w, r, http.StatusBadRequest, "InvalidPart")
			return
		}
		data = append(data, part...)
	}
	s.objects[up.key] = object{data, up.meta, time.Now()}
	delete(s.uploads, id)
	answer(w, struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}{ETag: etag(data)})
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := s.objects[key]
	if !ok {
		refuse(w, r, http.StatusNotFound, "NoSuchKey")
		return
	}
	if m := r.Header.Get("If-Match"); m != "" && m != etag(o.data) {
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	h := w.Header()
	h.Set("ETag", etag(o.data))
	h.Set("Last-Modified", o.time.UTC().Format(http.TimeFormat))
	if o.meta != "" {
		h.Set("X-Amz-Meta-Sha256", o.meta)
	}
	data, status := o.data, http.StatusOK
	if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
		first, last, _ := strings.Cut(text, "-")
		from, _ := strconv.Atoi(first)
		end := len(data)
		if n, err := strconv.Atoi(last); err == nil {
			end = min(end, n+1)
		}
		if from >= end {
			refuse(w, r, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, end-1, len(data)))
		data, status = data[from:end], http.StatusPartialContent
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

// pageSize is small, so that every test of more than a few objects turns pages.
const pageSize = 3

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key          string
		Size         int
		LastModified string
		ETag         string
	}
	type common struct{ Prefix string }
	out := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
		CommonPrefixes        []common
	}{}
	q := r.URL.Query()
	prefix, delimiter := q.Get("prefix"), q.Get("delimiter")
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	most := pageSize
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		most = min(most, n)
	}
	for _, k := range s.sorted(prefix) {
		shown := k
		if delimiter != "" {
			if dir, _, ok := strings.Cut(strings.TrimPrefix(k, prefix), delimiter); ok {
				shown = prefix + dir + delimiter
			}
		}
		if k <= after || shown <= after || shown != k && len(out.CommonPrefixes) > 0 && out.CommonPrefixes[len(out.CommonPrefixes)-1].Prefix == shown {
			continue
		}
		if len(out.Contents)+len(out.CommonPrefixes) == most {
			out.IsTruncated = true
			break
		}
		out.NextContinuationToken = shown
		if shown != k {
			out.NextContinuationToken = shown
			out.CommonPrefixes = append(out.CommonPrefixes, common{shown})
			continue
		}
		o := s.objects[k]
		out.Contents = append(out.Contents, content{k, len(o.data), o.time.UTC().Format(time.RFC3339), etag(o.data)})
	}
	if !out.IsTruncated {
		out.NextContinuationToken = ""
	}
	answer(w, out)
}

func (s *Server) listUploads(w http.ResponseWriter, prefix string) {
	type one struct {
		Key       string
		UploadId  string //nolint:staticcheck // the protocol's spelling
		Initiated string
	}
	out := struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []one
	}{}
	for id, u := range s.uploads {
		if strings.HasPrefix(u.key, prefix) {
			out.Upload = append(out.Upload, one{u.key, id, u.begun.UTC().Format(time.RFC3339)})
		}
	}
	answer(w, out)
}
