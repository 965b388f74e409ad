// Package presencetest is the suite that every implementation of
// [presence.Gateway] passes.
package presencetest
