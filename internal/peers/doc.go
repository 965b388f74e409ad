// Package peers lets the gateways of a deployment ask each other questions:
// who is connected there, is this message known there.
//
// It makes questions and answers of the notices of package presence, which may
// be lost: a question is repeated until its time is over, and answered once. It
// is for operators and for rare requests, never for the path of a message. It
// knows no question's meaning, and keeps nothing.
package peers
