// Package grants keeps who may act for whom: grants are made of a subject's own
// session, derived, narrowed, renewed and revoked, and asked for whenever
// somebody acts in another's name.
//
// What is asked on the way of a message is answered from a copy in memory that
// follows the store, without a wait: whether a grant holds, whether it covers
// what is done, and whether its subject may do that itself. It fails closed:
// what is not known here is refused, after one look into the store for all who
// wait ([Service.Look]).
//
// A grant opens nothing. Its delegate must be permitted by the matrix, the
// workspace rule and the policy, as without one, before anybody asks here; and
// its subject must be, too.
//
// The package knows neither messages nor sessions nor tasks: who uses a grant
// says what for.
package grants
