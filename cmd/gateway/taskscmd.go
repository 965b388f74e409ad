package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type tasksCmd struct {
	Create tasksCreateCmd `cmd:"" help:"Create a task for an identity or for one worker of an implementation, and print its id."`
	List   tasksListCmd   `cmd:"" help:"List tasks, the newest first."`
	Show   tasksShowCmd   `cmd:"" help:"Show all that is known of a task."`
	Watch  tasksWatchCmd  `cmd:"" help:"Follow a task, with a bar of its progress, until it has ended."`
	Retry  tasksRetryCmd  `cmd:"" help:"Have a task that has ended done again, as a new attempt."`
	Cancel tasksCancelCmd `cmd:"" help:"End a task."`
}

type tasksListCmd struct {
	Workspace string   `placeholder:"W" help:"Only those of this workspace."`
	Status    []string `placeholder:"S" help:"Only those with this status, such as queued, running or failed; may be repeated."`
	Identity  string   `placeholder:"WHO" help:"Only those that this identity has created, works on or is to do."`
	Type      string   `placeholder:"T" help:"Only those of this type."`
	Limit     int      `default:"100" placeholder:"N" help:"At most so many; 0 is all."`
	outputFlag
	adminFlags
}

func (c *tasksListCmd) Run(p *program) error {
	if c.Limit < 0 {
		return usagef("--limit must not be negative")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		limit := c.Limit
		if limit == 0 {
			limit = everything
		}
		all, err := gather(ctx, o, o.ListTasks, &adminv1.ListTasksRequest{
			Workspace: c.Workspace, Statuses: c.Status, Identity: c.Identity, TaskType: c.Type,
		}, limit, (*adminv1.ListTasksResponse).GetTasks)
		if err != nil {
			return err
		}
		return printTasks(p, c.Output, all)
	})
}

func printTasks(p *program, output string, list []*adminv1.Task) error {
	return table(p, output, list, []string{"TASK", "TYPE", "STATUS", "WORKSPACE", "FOR", "BY", "CREATOR", "ATTEMPT", "CREATED", "REASON"}, func(t *adminv1.Task) []string {
		return []string{
			t.GetTaskId(), t.GetTaskType(), t.GetStatus(), t.GetWorkspace(), t.GetTargetTopic(), t.GetAssignedTo(), t.GetCreatorActorId(),
			fmt.Sprintf("%d/%d", t.GetAttempt(), t.GetMaxAttempts()), time.Unix(t.GetCreatedAt(), 0).UTC().Format(time.RFC3339), t.GetError(),
		}
	})
}

type tasksShowCmd struct {
	Task string `arg:"" help:"The id of the task."`
	outputFlag
	adminFlags
}

func (c *tasksShowCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		r, err := once(ctx, o, o.GetTask, &adminv1.GetTaskRequest{TaskId: c.Task})
		if err != nil {
			return err
		}
		return printTasks(p, c.Output, []*adminv1.Task{r.GetTask()})
	})
}

type tasksRetryCmd struct {
	moveTask
}

// Run has a task done again.
func (c *tasksRetryCmd) Run(p *program) error { return c.move(p, "retry") }

type tasksCancelCmd struct {
	moveTask
}

// Run ends a task.
func (c *tasksCancelCmd) Run(p *program) error { return c.move(p, "cancel") }

type moveTask struct {
	Task   string `arg:"" help:"The id of the task."`
	Reason string `placeholder:"WHY" help:"What its creator is told."`
	outputFlag
	adminFlags
}

func (c *moveTask) move(p *program, action string) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		r, err := once(ctx, o, o.MoveTask, &adminv1.MoveTaskRequest{TaskId: c.Task, Action: action, Reason: c.Reason})
		if err != nil {
			return err
		}
		return printTasks(p, c.Output, []*adminv1.Task{r.GetTask()})
	})
}

type tasksWatchCmd struct {
	Task   string `arg:"" help:"The id of the task."`
	Output string `default:"text" enum:"text,json" help:"text, or json with one object a line."`
	adminFlags
}

// Run follows a task until it has ended.
func (c *tasksWatchCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		stream, err := o.AdminClient.WatchTask(ctx, &adminv1.WatchTaskRequest{TaskId: c.Task})
		if err != nil {
			return o.explain(err)
		}
		for {
			r, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return o.ended(ctx, err)
			}
			if err := printWatched(p, r, c.Output); err != nil {
				return err
			}
		}
	})
}

func printWatched(p *program, r *adminv1.WatchTaskResponse, output string) error {
	if output == "json" {
		return json.NewEncoder(p.stdout).Encode(object(r))
	}
	if t := r.GetTask(); t != nil {
		line := fmt.Sprintf("%s  attempt %d/%d", t.GetStatus(), t.GetAttempt(), t.GetMaxAttempts())
		for _, part := range []string{t.GetAssignedTo(), t.GetError()} {
			if part != "" {
				line += "  " + printable(part)
			}
		}
		_, err := fmt.Fprintln(p.stdout, line)
		return err
	}
	u := r.GetProgress()
	_, err := fmt.Fprintf(p.stdout, "%s %3.0f%%  %s %s\n", bar(u.GetCompletion()), 100*u.GetCompletion(), printable(u.GetState()), printable(u.GetSummary()))
	return err
}

// barWidth is in characters.
const barWidth = 30

// bar draws how much of something is done, from 0 to 1.
func bar(part float64) string {
	full := min(max(int(part*barWidth), 0), barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "]"
}
