package session

import (
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// filtersFrame names the frame in the details of a refusal: it has no request
// id.
const filtersFrame = "update_filters"

// filters returns what a session takes of its subscriptions from its beginning
// on. They belong to the connection: one that resumes another brings its own, or
// takes everything. The error is the status of the stream.
func filters(d *aetherv1.DeliveryOptions) (*router.Filters, error) {
	f, refused := router.ParseFilters(d.GetFilters())
	return f, refusedFilters(refused)
}

// refusedFilters is the status of a stream whose filters are refused.
func refusedFilters(e *wireerr.Error) error {
	if e == nil {
		return nil
	}
	return status.Error(e.GRPC(), e.Error())
}

// updateFilters replaces all filters of the session, or none. Nothing is
// answered but a refusal; a frame that is answered tells that the update before
// it has been done. What else stands in the options is as it was when the
// session began: an acknowledgement mode that is another one is refused, because
// the client would take itself for one that it is not.
func (s *Session) updateFilters(d *aetherv1.DeliveryOptions) {
	refused := s.keepsMode(d.GetAckMode())
	var f *router.Filters
	if refused == nil {
		f, refused = router.ParseFilters(d.GetFilters())
	}
	if refused == nil {
		refused = s.m.o.Router.MayFilter(&s.principal, f)
	}
	if refused != nil {
		s.refuse("", refused.With("frame", filtersFrame))
		return
	}
	s.sub.Filter(f)
}

func (s *Session) keepsMode(mode aetherv1.AckMode) *wireerr.Error {
	is := aetherv1.AckMode_ACK_MODE_AUTO
	if s.box.Mode() == delivery.Client {
		is = aetherv1.AckMode_ACK_MODE_CLIENT
	}
	if mode != aetherv1.AckMode_ACK_MODE_UNSPECIFIED && mode != is {
		return wireerr.New(wireerr.InvalidArgument, "ack_mode cannot change while a session lasts")
	}
	return nil
}
