package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/steadyrl/steady/internal/fault"
)

var (
	// errExists says that a conditional write found its key taken.
	errExists = errors.New("the object exists")
	// errConflict says that another conditional write of the key is in progress.
	errConflict = errors.New("the object is being written by somebody else")
	// errNoBucket and errClosed say that the store as a whole is away.
	errNoBucket = errors.New("the bucket does not exist")
	errClosed   = errors.New("the server does not accept the credentials")
	// errFolder says that a server with real directories has one where the key is, or an object above it.
	errFolder = errors.New("it is a directory, or below an object")
)

// Codes of the protocol, by what can be done about them.
var (
	codesMissing = []string{"NoSuchKey", "NotFound", "NoSuchUpload", "NoSuchVersion"}
	codesAway    = []string{"NoSuchBucket"}
	codesClosed  = []string{
		"ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSecurity", "InvalidToken", "NotSignedUp",
		"RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired", "UnrecognizedClientException", "XAdminNoSuchUser", "NoSuchUser",
	}
	codesDenied = []string{"AccessDenied", "AccountProblem", "AllAccessDisabled", "Forbidden", "KMS.DisabledException", "InvalidObjectState"}
	codesFull   = []string{"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "XMinioDriveFull"}
	codesTaken  = []string{"PreconditionFailed"}
	codesFolder = []string{"ObjectParentIsFile", "ExistingObjectIsDirectory", "DirectoryObjectContainsData", "XMinioParentIsObject", "XMinioObjectExistsAsDirectory"}
	codesNever  = []string{
		"EntityTooLarge", "EntityTooSmall", "InvalidArgument", "InvalidBucketName", "InvalidRequest", "KeyTooLongError", "KeyTooLong", "MethodNotAllowed", "NotImplemented",
		"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException",
	}
)

// classify gives an error of a request its kind. What it cannot place is Busy if it is about the way to the server, and else Internal.
// A cancelled context's error is returned as it is.
func (s *Store) classify(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	say := func(kind fault.Kind, cause error, hint string) error {
		e := fault.New(kind, op, "%s: %w", name, cause)
		if hint != "" {
			e = e.WithHint("%s", hint)
		}
		return e
	}
	code, status := codeOf(err)
	switch {
	case slices.Contains(codesAway, code):
		return say(fault.Busy, fmt.Errorf("the artifact store is away: %w %q: %w", errNoBucket, s.o.Bucket, err),
			"make the bucket, or correct its name; a run waits and goes on by itself")
	case slices.Contains(codesClosed, code):
		return say(fault.Busy, fmt.Errorf("%w: %w", errClosed, err),
			"renew the credentials of the AWS environment, and look at the clock of this machine; a run waits and goes on by itself")
	case slices.Contains(codesTaken, code) || code == "" && status == http.StatusPreconditionFailed:
		return say(fault.Stale, errExists, "")
	case code == "ConditionalRequestConflict":
		return say(fault.Busy, fmt.Errorf("%w: %w", errConflict, err), "the run tries again")
	case slices.Contains(codesFull, code) || status == http.StatusInsufficientStorage:
		return say(fault.Busy, err, "free space in the artifact store; the run waits and goes on by itself")
	case slices.Contains(codesFolder, code):
		return say(fault.Invalid, fmt.Errorf("%w: %w", errFolder, err), "a name cannot be an object and a directory of objects")
	case slices.Contains(codesMissing, code) || status == http.StatusNotFound:
		return say(fault.NotFound, fmt.Errorf("%w (%w)", fs.ErrNotExist, err), "")
	case slices.Contains(codesDenied, code) || status == http.StatusForbidden || status == http.StatusUnauthorized:
		return say(fault.Invalid, err, "give the role of this process the right to do this; docs/deployment.md lists what each role needs. "+
			"Without s3:ListBucket a missing object looks forbidden")
	case slices.Contains(codesNever, code) || status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect:
		return say(fault.Invalid, err, "check bucket, region and endpoint of the store's address, and what the server can do")
	case status == 0 && code == "", status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout,
		status == http.StatusConflict, status == http.StatusOK:
		// No answer, an answer that broke off, or one that says to try again.
		return say(fault.Busy, err, "is the server of the artifact store up, and reachable from this machine? The run tries again")
	case code == "BadDigest" || code == "RequestTimeout" || code == "SlowDown" || code == "IncompleteBody" || code == "XAmzContentChecksumMismatch" || code == "XAmzContentSHA256Mismatch":
		return say(fault.Busy, err, "bytes were lost on the way to the artifact store; the run tries again")
	}
	return say(fault.Internal, err, "")
}

// codeOf returns the protocol's code and the HTTP status of an error, as far as there are any.
func codeOf(err error) (code string, status int) {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		code = e.ErrorCode()
	}
	if e, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = e.HTTPStatusCode()
	}
	return code, status
}

// deleteError is one of the errors in the answer to a request that removes many objects.
type deleteError struct{ code, message string }

func (e *deleteError) Error() string                 { return e.code + ": " + e.message }
func (e *deleteError) ErrorCode() string             { return e.code }
func (e *deleteError) ErrorMessage() string          { return e.message }
func (e *deleteError) ErrorFault() smithy.ErrorFault { return smithy.FaultUnknown }
