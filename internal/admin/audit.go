package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/store"
)

// ListAudit implements the service.
func (s *Service) ListAudit(ctx context.Context, r *adminv1.ListAuditRequest) (*adminv1.ListAuditResponse, error) {
	if s.o.Records == nil {
		return nil, status.Error(codes.FailedPrecondition, "this gateway records nothing")
	}
	f := store.AuditFilter{Kind: r.GetKind(), Actor: r.GetActor()}
	if f.Kind != "" && !slices.Contains(audit.Kinds(), audit.Kind(f.Kind)) {
		names := make([]string, 0, len(audit.Kinds()))
		for _, k := range audit.Kinds() {
			names = append(names, string(k))
		}
		return nil, status.Errorf(codes.InvalidArgument, "kind %.64q does not exist; it is one of %s", f.Kind, strings.Join(names, ", "))
	}
	if ms := r.GetSinceMs(); ms > 0 {
		f.Since = time.UnixMilli(ms)
	}
	if token := r.GetPageToken(); token != "" {
		before, err := parseAuditToken(token)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
		}
		f.Before = &before
	}
	n := pageSize(r.GetPageSize())
	list, err := s.o.Records.AuditRecords(ctx, f, n+1)
	if err != nil {
		return nil, s.storeAway("read the audit", err)
	}
	page := &adminv1.ListAuditResponse{}
	if len(list) > n {
		list = list[:n]
		page.NextPageToken = auditToken(list[n-1].AuditKey)
	}
	for i := range list {
		x := &list[i]
		page.Records = append(page.Records, &adminv1.AuditRecord{
			AtMs: x.At.UnixMilli(), Gateway: x.Gateway, Kind: x.Kind, Actor: x.Actor, Action: x.Action, Target: x.Target,
			Outcome: x.Outcome, Reason: x.Reason, Detail: x.Detail, Count: x.Count,
		})
	}
	return page, nil
}

// pageKey is a [store.AuditKey] in a token.
type pageKey struct {
	At     int64  `json:"t"`
	Origin string `json:"o"`
	Seq    uint64 `json:"n"`
}

func auditToken(k store.AuditKey) string {
	b, err := json.Marshal(pageKey{k.At.UnixMilli(), k.Origin, k.Seq})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseAuditToken(token string) (store.AuditKey, error) {
	var k pageKey
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	return store.AuditKey{At: time.UnixMilli(k.At), Origin: k.Origin, Seq: k.Seq}, err
}

// storeAway is the status of a call for which the store did not do its part.
// What it said is for the log.
func (s *Service) storeAway(what string, err error) error {
	if errors.Is(err, store.ErrText) || errors.Is(err, store.ErrRange) {
		return status.Error(codes.InvalidArgument, "a text or a number is not one that can be stored")
	}
	s.o.Logger.Warn("an operator's call failed in the store", "what", what, "error", err)
	return status.Errorf(codes.Unavailable, "the store could not %s; try again in a moment", what)
}
