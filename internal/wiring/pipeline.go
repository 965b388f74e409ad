package wiring

import "slices"

// Pipeline is something that takes messages from topics and puts messages into
// topics.
type Pipeline struct {
	ID                  string
	Consumes, Publishes []string
}

// FindCycles returns the ways by which a message could come back to a topic that
// it has been in: one for each set of pipelines that lie in circles together. A
// way begins and ends with the same node; topics are written "topic:NAME".
//
// takes says whether what is published to one topic is consumed under the name of
// another; nil compares the names.
func FindCycles(pipelines []Pipeline, takes func(consumed, published string) bool) [][]string {
	if takes == nil {
		takes = func(consumed, published string) bool { return consumed == published }
	}
	// next[i] are the pipelines that pipeline i feeds, via by which topic.
	next := make([][]int, len(pipelines))
	via := map[[2]int]string{}
	for i, p := range pipelines {
		for j, q := range pipelines {
			for _, out := range p.Publishes {
				if slices.ContainsFunc(q.Consumes, func(in string) bool { return takes(in, out) }) {
					next[i] = append(next[i], j)
					via[[2]int{i, j}] = out
					break
				}
			}
		}
	}
	var cycles [][]string
	done := make([]bool, len(pipelines)) // lies in a cycle that was found
	for start := range pipelines {
		if done[start] {
			continue
		}
		way := shortest(next, start)
		if way == nil {
			continue
		}
		var nodes []string
		for k, i := range way[:len(way)-1] {
			done[i] = true
			before := way[len(way)-2]
			if k > 0 {
				before = way[k-1]
			}
			nodes = append(nodes, "topic:"+via[[2]int{before, i}], pipelines[i].ID)
		}
		cycles = append(cycles, append(nodes, nodes[0]))
	}
	return cycles
}

// shortest returns the shortest way from start back to it, nil if there is none.
func shortest(next [][]int, start int) []int {
	from := map[int]int{}
	queue := []int{start}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range next[i] {
			if j == start {
				way := []int{start}
				for k := i; k != start; k = from[k] {
					way = append(way, k)
				}
				way = append(way, start)
				slices.Reverse(way)
				return way
			}
			if _, seen := from[j]; !seen {
				from[j] = i
				queue = append(queue, j)
			}
		}
	}
	return nil
}
