// Package policytest checks in "go test" that a policy keeps the contract of
// package policy.
//
// [TestDefinition] runs everything that applies to a policy, in the test's own
// process and behind a real gRPC connection:
//
//	func TestFair(t *testing.T) {
//		policytest.TestDefinition(t, fair.Definition, `{}`, `{"max": 1}`)
//	}
//
// The suites can be used alone, with any constructor: [TestAdmitter],
// [TestScopes], [TestRestorer], [TestSelector], [TestObserver] and
// [TestOperable]. [Build] and [Dial] make an instance for tests of one's own.
//
// Every check is a subtest whose name says what must hold, so "go test -run"
// selects one. Run them with -race: many checks call the policy from many
// goroutines only for that. A check that needs something that the policy does
// not have, such as a limit, is skipped and says so.
package policytest
