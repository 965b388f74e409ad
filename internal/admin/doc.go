// Package admin is the operators' service, aether.admin.v1.Admin: it shows and
// steers a deployment, through whichever gateway it is asked at.
//
// [Gate] lets operators in and nobody else. [Service] asks the other gateways
// where only they know, and records what operators did. It decides nothing about
// messages: that is done by those whose state it shows.
package admin
