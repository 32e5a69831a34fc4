export { AbortScope } from './abort-scope.ts'
export { AbortSource, offAbort, onAbort } from './abort-source.ts'
export type { AbortListener } from './abort-source.ts'
export { andList } from './and-list.ts'
export { ArraySet } from './array-set.ts'
export { bytesOf, dtypeOf, type NumberArray } from './array-bytes.ts'
export { memoryPieces, numberPieces } from './array-json.ts'
export { AsyncQueue } from './async-queue.ts'
export { backoffMs } from './backoff.ts'
export type { Backoff } from './backoff.ts'
export { nameBlockedMainThread, nameBlockedThread } from './blocked-thread.ts'
export { causesOf } from './causes-of.ts'
export { closeAll } from './close-all.ts'
export { closeTogether } from './close-together.ts'
export { commonLength } from './common-length.ts'
export { describeThrown } from './describe-thrown.ts'
export type { Draft } from './draft.ts'
export { EventChannel } from './event-channel.ts'
export { exactSource, hasInexactNumber, lostNumber, parseExactly } from './exact-json.ts'
export { heapShare } from './heap-share.ts'
export { HostCheck, isLoopback } from './host-check.ts'
export { interpolate } from './interpolate.ts'
export { isJson } from './is-json.ts'
export { isNestedWithin } from './is-nested-within.ts'
export {
  backslash,
  closeBrace,
  closeBracket,
  comma,
  elementsEnd,
  isDigit,
  isKey,
  keyBytes,
  keyEnd,
  membersEnd,
  nonSpace,
  notWalkable,
  openBrace,
  openBracket,
  quote,
  requirePlainKey,
  spaceEnd,
  valueEnd,
} from './json-bytes.ts'
export { depthProblem } from './json-depth.ts'
export { jsonOrText } from './json-or-text.ts'
export { kindOfValue } from './kind-of-value.ts'
export { LineSplitter } from './line-splitter.ts'
export { LoopLag } from './loop-lag.ts'
export type { LoopLagWindow } from './loop-lag.ts'
export { makeFolders } from './make-folders.ts'
export { maxTimerMs, timerMs } from './timer-ms.ts'
export { nearestName, nearestNames } from './nearest-name.ts'
export { ownCopy } from './own-copy.ts'
export { onFirstUse } from './on-first-use.ts'
export { packageVersion } from './package-version.ts'
export { pathText } from './path-text.ts'
export { peeked } from './peeked.ts'
export { placeOfError } from './place-of-error.ts'
export { raced } from './raced.ts'
export { derivedSeed, hash32, seededRandom } from './random.ts'
export { RecentWaits } from './recent-waits.ts'
export { headerSecrets, redactedMark, Redaction } from './redaction.ts'
export { Resource } from './resource.ts'
export { RingQueue } from './ring-queue.ts'
export { roundedSum } from './rounded-sum.ts'
export { sameNumbers } from './same-numbers.ts'
export { Secret } from './secret.ts'
export { Semaphore } from './semaphore.ts'
export { SemaphoreLedger } from './semaphore-ledger.ts'
export { sleep } from './sleep.ts'
export { settleHeapForGateway, settleHeapForRollouts } from './steady-heap.ts'
export { SseDecoder, type EventSink } from './sse-decoder.ts'
export { sseEvent } from './sse-event.ts'
export { StopClock, type SpentTime } from './stop-clock.ts'
export { ThreadWaker } from './thread-waker.ts'
export { Thread } from './thread.ts'
export { thrownBy } from './thrown-by.ts'
export { TimeSlice } from './time-slice.ts'
export { TurnBatches } from './turn-batches.ts'
export { unknownField } from './unknown-field.ts'
export { utf8Problem } from './utf8-problem.ts'
export type { Variables } from './variables.ts'
export { dropStartVariables, startVariables } from './start-variables.ts'
export { machineShare, processShare, shareWith } from './worker-share.ts'
export { workerUrl } from './worker-url.ts'
export { urlSecrets, withoutUrlSecrets } from './without-url-secrets.ts'
export { within } from './within.ts'
