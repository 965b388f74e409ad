package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type implCmd struct {
	Register implRegisterCmd `cmd:"" help:"Have an implementation started when mail waits for one of ag::W::I::* or tu::W::I::* that is not connected, by an orchestrator that announces the profile."`
	List     implListCmd     `cmd:"" help:"List the implementations that can be started."`
	Remove   implRemoveCmd   `cmd:"" help:"Have an implementation not be started any more."`
}

type implRegisterCmd struct {
	Impl        string            `required:"" placeholder:"I" help:"The implementation: the third part of ag::W::I::S and of tu::W::I::S, which are both started."`
	Profile     string            `required:"" placeholder:"P" help:"What an orchestrator must announce to get it."`
	Workspace   string            `placeholder:"W" help:"The workspace that this is for (default: all that have no entry of their own)."`
	Param       map[string]string `mapsep:"none" placeholder:"K=V" help:"A launch parameter; may be repeated."`
	Overridable []string          `sep:"none" placeholder:"K" help:"A launch parameter that who asks for a start may set otherwise; may be repeated."`
	outputFlag
	adminFlags
}

func (c *implRegisterCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		registered, err := once(ctx, o, o.RegisterImplementation, &adminv1.RegisterImplementationRequest{Implementation: &adminv1.Implementation{
			Implementation: c.Impl, Workspace: c.Workspace, Profile: c.Profile, LaunchParams: c.Param, Overridable: c.Overridable,
		}})
		if err != nil {
			return err
		}
		return printImplementations(p, c.Output, []*adminv1.Implementation{registered.GetImplementation()})
	})
}

func printImplementations(p *program, output string, list []*adminv1.Implementation) error {
	return table(p, output, list, []string{"IMPLEMENTATION", "WORKSPACE", "PROFILE", "LAUNCH PARAMS", "OVERRIDABLE", "BY"}, func(i *adminv1.Implementation) []string {
		var params []string
		for _, name := range slices.Sorted(maps.Keys(i.GetLaunchParams())) {
			params = append(params, name+"="+i.GetLaunchParams()[name])
		}
		return []string{
			i.GetImplementation(), i.GetWorkspace(), i.GetProfile(), strings.Join(params, " "), strings.Join(i.GetOverridable(), " "), i.GetCreatedBy(),
		}
	})
}

type implListCmd struct {
	outputFlag
	adminFlags
}

func (c *implListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListImplementations, &adminv1.ListImplementationsRequest{}, everything, (*adminv1.ListImplementationsResponse).GetImplementations)
		if err != nil {
			return err
		}
		return printImplementations(p, c.Output, all)
	})
}

type implRemoveCmd struct {
	Impl      string `arg:"" help:"The implementation."`
	Workspace string `placeholder:"W" help:"The workspace of the entry (default: the entry for all)."`
	outputFlag
	adminFlags
}

func (c *implRemoveCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		removed, err := once(ctx, o, o.RemoveImplementation, &adminv1.RemoveImplementationRequest{Implementation: c.Impl, Workspace: c.Workspace})
		if err != nil {
			return err
		}
		return printImplementations(p, c.Output, []*adminv1.Implementation{removed.GetImplementation()})
	})
}
