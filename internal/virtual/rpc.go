package virtual

import (
	"context"
	"strings"

	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// DialOption makes the calls of a client connection end here. The connection never dials.
func (s *Server) DialOption() grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		res, err := s.call(ctx, req)
		if err != nil {
			return err
		}
		out, ok := reply.(proto.Message)
		if !ok || res == nil {
			return status.Errorf(codes.Unimplemented, "unknown method %s", method[strings.LastIndex(method, "/")+1:])
		}
		// A copy of the top only: what it refers to is not changed after it was sent.
		to := out.ProtoReflect()
		res.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			to.Set(f, v)
			return true
		})
		return nil
	})
}

func (s *Server) call(ctx context.Context, req any) (proto.Message, error) {
	switch q := req.(type) {
	case *workflowservice.PollWorkflowTaskQueueRequest:
		return s.poll(ctx)
	case *workflowservice.RespondWorkflowTaskCompletedRequest:
		return &workflowservice.RespondWorkflowTaskCompletedResponse{}, s.answer(ctx, answer{done: q})
	case *workflowservice.RespondWorkflowTaskFailedRequest:
		return &workflowservice.RespondWorkflowTaskFailedResponse{}, s.answer(ctx, answer{failed: q})
	case *workflowservice.GetSystemInfoRequest:
		return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{
			SignalAndQueryHeader: true, InternalErrorDifferentiation: true, ActivityFailureIncludeHeartbeat: true,
			EncodedFailureAttributes: true, UpsertMemo: true, SdkMetadata: true,
		}}, nil
	case *workflowservice.DescribeNamespaceRequest:
		return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{Name: Namespace}}, nil
	case *workflowservice.GetWorkflowExecutionHistoryRequest:
		return nil, status.Error(codes.NotFound, "the worker lost an execution from its cache")
	}
	return nil, nil
}

func (s *Server) poll(ctx context.Context) (proto.Message, error) {
	select {
	case t := <-s.tasks:
		return t, nil
	case <-s.stopped:
		<-ctx.Done() // or the poller would ask again at once
	case <-ctx.Done():
	}
	return &workflowservice.PollWorkflowTaskQueueResponse{}, nil
}

func (s *Server) answer(ctx context.Context, a answer) error {
	select {
	case s.answers <- a:
		return nil
	case <-s.stopped:
		return status.Error(codes.NotFound, "the server has stopped")
	case <-ctx.Done():
		return ctx.Err()
	}
}
