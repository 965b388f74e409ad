// Package load measures a running gateway from outside, with the SDK that
// everybody uses: pairs of agents, one of which sends and the other receives.
//
// It finds out what a deployment does on its machines, and compares nothing:
// baselines, and what the gateway is held to, are the business of the program
// in bench/.
package load
