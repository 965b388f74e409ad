package admin

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/store"
)

// Rules are the policy rules: a [policy.Book].
type Rules interface {
	Add(ctx context.Context, r store.Rule) (policy.Added, error)
	Remove(ctx context.Context, id int64) (rule store.Rule, found bool, err error)
	List(ctx context.Context, after int64, limit int) ([]store.Rule, error)
	// Set returns the rules in force, nil while they are not known.
	Set() *policy.Set
}

func ruleOf(r store.Rule) *adminv1.Rule {
	x := &adminv1.Rule{
		Id: r.ID, Effect: r.Effect, Principal: r.Principal, Action: r.Action, Address: r.Address, Grammar: r.Grammar,
		CreatedBy: r.CreatedBy, Note: r.Note,
	}
	if !r.CreatedAt.IsZero() {
		x.CreatedAt = r.CreatedAt.Unix()
	}
	return x
}

// AddRule implements the service.
func (s *Service) AddRule(ctx context.Context, r *adminv1.AddRuleRequest) (*adminv1.AddRuleResponse, error) {
	x := r.GetRule()
	if err := plain("the principal", x.GetPrincipal(), "the address", x.GetAddress(), "the note", x.GetNote()); err != nil {
		return nil, err
	}
	added, err := s.o.Rules.Add(ctx, store.Rule{
		Effect: x.GetEffect(), Principal: x.GetPrincipal(), Action: x.GetAction(), Address: x.GetAddress(), Grammar: x.GetGrammar(),
		CreatedBy: operatorOf(ctx).Name, Note: x.GetNote(),
	})
	if err != nil {
		err = s.ruleError("add the rule", err)
	}
	s.acted(ctx, audit.Rule, "rule add", x.GetEffect()+" "+x.GetPrincipal()+" "+x.GetAction()+" "+x.GetAddress(), err)
	if err != nil {
		return nil, err
	}
	response := &adminv1.AddRuleResponse{Rule: ruleOf(added.Rule), Created: added.New}
	for _, w := range added.Warnings {
		response.Warnings = append(response.Warnings, &adminv1.RuleWarning{Code: w.Code, Text: w.Text, RuleIds: w.Rules})
	}
	return response, nil
}

// ListRules implements the service.
func (s *Service) ListRules(ctx context.Context, r *adminv1.ListRulesRequest) (*adminv1.ListRulesResponse, error) {
	after := int64(0)
	if token := r.GetPageToken(); token != "" {
		var err error
		if after, err = strconv.ParseInt(token, 10, 64); err != nil {
			return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
		}
	}
	n := pageSize(r.GetPageSize())
	list, err := s.o.Rules.List(ctx, after, n+1)
	if err != nil {
		return nil, s.ruleError("list the rules", err)
	}
	page := &adminv1.ListRulesResponse{}
	if len(list) > n {
		list = list[:n]
		page.NextPageToken = strconv.FormatInt(list[n-1].ID, 10)
	}
	for _, rule := range list {
		page.Rules = append(page.Rules, ruleOf(rule))
	}
	return page, nil
}

// RemoveRule implements the service.
func (s *Service) RemoveRule(ctx context.Context, r *adminv1.RemoveRuleRequest) (*adminv1.RemoveRuleResponse, error) {
	rule, found, err := s.o.Rules.Remove(ctx, r.GetId())
	switch {
	case err != nil:
		err = s.ruleError("remove the rule", err)
	case !found:
		err = status.Errorf(codes.NotFound, "there is no rule %d", r.GetId())
	}
	s.acted(ctx, audit.Rule, "rule remove", strconv.FormatInt(r.GetId(), 10), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RemoveRuleResponse{Rule: ruleOf(rule)}, nil
}

// ruleError is the status of a call about rules that failed.
func (s *Service) ruleError(what string, err error) error {
	var invalid *policy.InvalidError
	switch {
	case errors.As(err, &invalid):
		return status.Error(codes.InvalidArgument, invalid.Error())
	case errors.Is(err, policy.ErrNoStore):
		return status.Error(codes.FailedPrecondition, "this gateway keeps no rules")
	case errors.Is(err, store.ErrFull):
		return status.Error(codes.ResourceExhausted, "there are as many rules as are allowed (rules.max); remove one first")
	}
	return s.storeAway(what, err)
}
