package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/trust"
)

// Credentials are API keys and revocations: a [trust.Credentials].
type Credentials interface {
	CreateKey(ctx context.Context, n trust.NewKey) (text string, made trust.Key, err error)
	ListKeys(ctx context.Context, after store.KeyPlace, limit int) ([]trust.Key, error)
	RevokeKey(ctx context.Context, idOrName, by string) (k trust.Key, was bool, err error)
	Revoke(ctx context.Context, r store.Revocation) error
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// lastSecond is that of the year 9999: what is later is a mistake, and does not
// fit everywhere.
const lastSecond = 253402300799

// instant is unix the other way round, for a field of a request.
func instant(field string, seconds int64) (time.Time, error) {
	switch {
	case seconds == 0:
		return time.Time{}, nil
	case seconds < 0 || seconds > lastSecond:
		return time.Time{}, status.Errorf(codes.InvalidArgument, "%s must be in seconds since 1970, up to the year 9999; 0 is never", field)
	}
	return time.Unix(seconds, 0), nil
}

func keyMessage(k trust.Key) *adminv1.Key {
	c := k.Claims
	return &adminv1.Key{
		KeyId: k.ID, Name: k.Name, Kind: c.Kind, Workspaces: c.Workspaces, Implementation: c.Impl, Specifier: c.Spec, User: c.User,
		Subject: c.Subject, Roles: c.Roles, CreatedBy: k.CreatedBy, RevokedBy: k.RevokedBy, CreatedAt: unix(k.CreatedAt),
		ExpiresAt: unix(k.ExpiresAt), RevokedAt: unix(k.RevokedAt), UsedAt: unix(k.UsedAt),
	}
}

// credentials returns what keeps credentials, or the status of a gateway that
// does not.
func (s *Service) credentials() (Credentials, error) {
	if s.o.Credentials == nil {
		return nil, status.Error(codes.FailedPrecondition, "this gateway keeps no API keys and no revocations")
	}
	return s.o.Credentials, nil
}

// CreateKey implements the service.
func (s *Service) CreateKey(ctx context.Context, r *adminv1.CreateKeyRequest) (*adminv1.CreateKeyResponse, error) {
	c, err := s.credentials()
	if err != nil {
		return nil, err
	}
	k := r.GetKey()
	err = cmp.Or(
		plain("the name", k.GetName(), "the implementation", k.GetImplementation(), "the specifier", k.GetSpecifier(), "the user", k.GetUser(), "the subject", k.GetSubject()),
		plainAll("a workspace", k.GetWorkspaces()), plainAll("a role", k.GetRoles()),
	)
	if err != nil {
		return nil, err
	}
	n := trust.NewKey{Name: k.GetName(), CreatedBy: operatorOf(ctx).Name, Claims: auth.Claims{
		Kind: k.GetKind(), Workspaces: k.GetWorkspaces(), Impl: k.GetImplementation(), Spec: k.GetSpecifier(), User: k.GetUser(),
		Subject: k.GetSubject(), Roles: k.GetRoles(),
	}}
	if n.ExpiresAt, err = instant("expires_at", k.GetExpiresAt()); err != nil {
		return nil, err
	}
	text, made, err := c.CreateKey(ctx, n)
	if err != nil {
		err = s.keyError("make the key", err)
	}
	s.acted(ctx, audit.Grant, "key create", strings.TrimSpace(made.Name+" "+made.ID), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.CreateKeyResponse{ApiKey: text, Key: keyMessage(made), Warnings: s.missing(ctx, made.Claims.Workspaces)}, nil
}

// missing warns of workspaces that do not exist. A key for one is no mistake:
// it may be made before the workspace is.
func (s *Service) missing(ctx context.Context, named []string) (warnings []string) {
	all, err := s.o.Spaces.Workspaces(ctx)
	if err != nil {
		return nil // what is not known is not warned of
	}
	for _, name := range named {
		if name != auth.AllWorkspaces && !slices.ContainsFunc(all, func(w store.Workspace) bool { return w.Name == name }) {
			warnings = append(warnings, fmt.Sprintf(
				"there is no workspace %q; unless connecting into it creates it (workspaces.auto_create), `gateway workspace create %s` does", name, name))
		}
	}
	return warnings
}

// ListKeys implements the service.
func (s *Service) ListKeys(ctx context.Context, r *adminv1.ListKeysRequest) (*adminv1.ListKeysResponse, error) {
	c, err := s.credentials()
	if err != nil {
		return nil, err
	}
	after, err := parseKeyToken(r.GetPageToken())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
	}
	n := pageSize(r.GetPageSize())
	list, err := c.ListKeys(ctx, after, n+1)
	if err != nil {
		return nil, s.keyError("list the keys", err)
	}
	page := &adminv1.ListKeysResponse{}
	if len(list) > n {
		list = list[:n]
		page.NextPageToken = keyToken(&list[n-1])
	}
	for i := range list {
		page.Keys = append(page.Keys, keyMessage(list[i]))
	}
	return page, nil
}

// keyToken names the place of a key in the list.
func keyToken(k *trust.Key) string {
	return strconv.FormatInt(k.CreatedAt.UnixMilli(), 10) + "." + k.ID
}

// parseKeyToken reads what keyToken gave; empty is before all keys.
func parseKeyToken(token string) (p store.KeyPlace, err error) {
	if token == "" {
		return p, nil
	}
	at, id, _ := strings.Cut(token, ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	return store.KeyPlace{CreatedAt: time.UnixMilli(ms), ID: id}, err
}

// revokeKeysOf revokes the keys that are good in a workspace alone, which is
// deleted: with them somebody would be in the next one of its name. It returns
// their ids, and warns of what it could not do, and of keys that reach further.
func (s *Service) revokeKeysOf(ctx context.Context, workspace string) (revoked, warnings []string) {
	c := s.o.Credentials
	if c == nil {
		return nil, nil
	}
	const all = 100_000
	list, err := c.ListKeys(ctx, store.KeyPlace{}, all)
	if err != nil {
		return nil, []string{"whether there are keys for it is not known, the store was away: see `gateway key list`"}
	}
	for i := range list {
		k := &list[i]
		if !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() && !s.o.Now().Before(k.ExpiresAt) || !slices.Contains(k.Claims.Workspaces, workspace) {
			continue
		}
		if len(k.Claims.Workspaces) > 1 {
			warnings = append(warnings, fmt.Sprintf("the key %s (%s) is good in other workspaces, too, and in the next one that is called %s: revoke it if it should not be", k.ID, k.Name, workspace))
			continue
		}
		_, _, err := c.RevokeKey(ctx, k.ID, operatorOf(ctx).Name)
		s.acted(ctx, audit.Grant, "key revoke", k.ID, err)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("the key %s (%s) could not be revoked, the store was away: `gateway key revoke %s`", k.ID, k.Name, k.ID))
			continue
		}
		revoked = append(revoked, k.ID)
	}
	return revoked, warnings
}

// RevokeKey implements the service.
func (s *Service) RevokeKey(ctx context.Context, r *adminv1.RevokeKeyRequest) (*adminv1.RevokeKeyResponse, error) {
	c, err := s.credentials()
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(r.GetKey()) == "" {
		return nil, status.Error(codes.InvalidArgument, "name a key by its id or its name")
	}
	k, was, err := c.RevokeKey(ctx, r.GetKey(), operatorOf(ctx).Name)
	target := k.ID
	if err != nil {
		target, err = shownName(r.GetKey()), s.keyError("revoke the key", err)
	}
	s.acted(ctx, audit.Grant, "key revoke", target, err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RevokeKeyResponse{Key: keyMessage(k), WasRevoked: was}, nil
}

// shownName is what a record may hold of what was typed as a key's id or name:
// nothing if it may be the key itself.
func shownName(typed string) string {
	if len(typed) > 48 || strings.HasPrefix(typed, auth.APIKeyPrefix) || strings.HasPrefix(typed, "eyJ") {
		return "" // a key's secret alone has 52 bytes
	}
	return typed
}

// maxRevoked bounds what is revoked by name, in bytes: a token's id, a subject.
const maxRevoked = 1024

// Revoke implements the service.
func (s *Service) Revoke(ctx context.Context, r *adminv1.RevokeRequest) (*adminv1.RevokeResponse, error) {
	c, err := s.credentials()
	if err != nil {
		return nil, err
	}
	what := store.Revoked(r.GetWhat())
	switch {
	case !what.Valid():
		return nil, status.Errorf(codes.InvalidArgument, "%.32q cannot be revoked: token, subject, user and identity can", r.GetWhat())
	case r.GetId() == "" || len(r.GetId()) > maxRevoked:
		return nil, status.Errorf(codes.InvalidArgument, "what is revoked needs a name of 1 to %d bytes", maxRevoked)
	case len(r.GetReason()) > maxReason:
		return nil, status.Errorf(codes.InvalidArgument, "the reason has %d bytes, %d are allowed", len(r.GetReason()), maxReason)
	case strings.Count(r.GetId(), ".") == 2 && strings.HasPrefix(r.GetId(), "eyJ"):
		return nil, status.Error(codes.InvalidArgument, "that is a token; give its id or its fingerprint")
	}
	x := store.Revocation{What: what, ID: r.GetId(), Reason: r.GetReason(), By: operatorOf(ctx).Name}
	if x.Until, err = instant("until", r.GetUntil()); err != nil {
		return nil, err
	}
	if err = c.Revoke(ctx, x); err != nil {
		err = s.keyError("record the revocation", err)
	}
	s.acted(ctx, audit.Grant, "revoke "+r.GetWhat(), r.GetId(), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RevokeResponse{}, nil
}

// keyError is the status of a call about credentials that failed.
func (s *Service) keyError(what string, err error) error {
	var taken *store.NameError
	switch {
	case errors.As(err, &taken):
		return status.Errorf(codes.AlreadyExists, "the good key %s has the name %q: give this one another, or revoke that first", taken.ID, taken.Name)
	case errors.Is(err, trust.ErrAmbiguous):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, store.ErrNotFound):
		return status.Error(codes.NotFound, "there is no such key; `gateway key list` shows them")
	case errors.Is(err, store.ErrFull):
		return status.Error(codes.ResourceExhausted, "there are as many as are allowed; what has expired goes by itself")
	case errors.Is(err, trust.ErrKey), errors.Is(err, auth.ErrClaims), errors.Is(err, store.ErrRevoked):
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return s.storeAway(what, err)
}
