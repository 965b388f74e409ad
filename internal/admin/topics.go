package admin

import (
	"context"
	"slices"
	"strings"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/address"
)

// maxTopics bounds a page of addresses: each costs some questions to the store.
const maxTopics = 100

// ListTopics implements the service.
func (s *Service) ListTopics(ctx context.Context, r *adminv1.ListTopicsRequest) (*adminv1.ListTopicsResponse, error) {
	n := maxTopics
	if asked := int(r.GetPageSize()); asked > 0 {
		n = min(asked, maxTopics)
	}
	var names []string
	if s.o.Mailboxes != nil {
		var err error
		if names, err = s.o.Mailboxes.MailAddresses(ctx, r.GetPrefix(), r.GetPageToken(), n+1); err != nil {
			return nil, s.storeAway("list the mailboxes", err)
		}
	}
	rates := s.o.Router.Rates()
	for name := range rates {
		if strings.HasPrefix(name, r.GetPrefix()) && name > r.GetPageToken() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	page := &adminv1.ListTopicsResponse{}
	if len(names) > n {
		names = names[:n]
		page.NextPageToken = names[n-1]
	}
	var exclusive []address.Address
	for _, name := range names {
		a, err := address.Parse(name)
		if err != nil {
			continue // the keys of engines that read every event address
		}
		x := &adminv1.Topic{Topic: name, Rate: rates[name], BacklogExact: true}
		if a.Prefix().Mode() == address.Exclusive {
			exclusive = append(exclusive, a)
			_, x.Connected = s.o.Leases.Holder(name)
		}
		page.Topics = append(page.Topics, x)
	}
	backlogs, err := s.o.Router.Backlogs(ctx, exclusive)
	if err != nil {
		return nil, s.storeAway("read what waits", err)
	}
	for _, x := range page.GetTopics() {
		if b, ok := backlogs[x.GetTopic()]; ok {
			x.Backlog, x.BacklogExact = b.Count, b.Exact
			if !b.Oldest.IsZero() {
				x.OldestUnreadMs = b.Oldest.UnixMilli()
			}
		}
	}
	return page, nil
}
