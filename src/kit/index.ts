export { IdleResources } from './async/idle-resources.ts'
export {
  type AbortListener,
  AbortScope,
  AbortSource,
  ArraySet,
  type Backoff,
  backoffMs,
  closeTogether,
  EventChannel,
  maxTimerMs,
  offAbort,
  onAbort,
  withAbort,
  Resource,
  sleep,
  timerMs,
  settlesWithin,
} from './async/lifecycle.ts'
export { AsyncQueue, peekFirst, RingQueue } from './async/queues.ts'
export {
  type ClockLimit,
  Semaphore,
  type ExhaustedClock,
  StopClock,
  StreamClock,
  type StreamClockLimits,
  TimeSlice,
  TurnBatches,
  WaitList,
} from './async/waiting.ts'
export { type Draft, deepCopy } from './bytes/deep-copy.ts'
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
} from './bytes/json-bytes.ts'
export {
  depthProblem,
  exactSource,
  hasInexactNumber,
  isJson,
  isJsonList,
  isJsonObject,
  isNestedWithin,
  type Json,
  type JsonObject,
  jsonOrText,
  kindOfValue,
  lostNumber,
  parseExactly,
  utf8Problem,
} from './bytes/json.ts'
export { LineSplitter } from './bytes/lines.ts'
export { derivedSeed, hash32, mix32, roundedSum, seededRandom } from './bytes/numbers.ts'
export { type EventSink, SseDecoder, sseEvent } from './bytes/sse.ts'
export {
  bytesOf,
  commonLength,
  commonNumbers,
  dtypeOf,
  memoryPieces,
  type NumberArray,
  numberPieces,
  plainNumbers,
  sameNumbers,
} from './bytes/typed-arrays.ts'
export { makeFolders, onFirstUse, packageVersion } from './text/files.ts'
export { HostCheck, isLoopback } from './text/host-check.ts'
export { interpolate, type Variables } from './text/interpolate.ts'
export { headerSecrets, redactedPlaceholder, Redaction, Secret, urlSecrets, withoutUrlSecrets } from './text/secrets.ts'
export { andList, nearestName, nearestNames, pathText, unknownField } from './text/suggest.ts'
export { causesOf, describeThrown, errorLocation, thrownBy } from './text/user-errors.ts'
export { parseYaml } from './text/yaml.ts'
export { nameBlockedThread } from './threads/blocked-thread.ts'
export { heapShare, settleHeapForGateway, settleHeapForRollouts } from './threads/gc.ts'
export { LoopLag, type LoopLagWindow, RecentWaits } from './threads/loop-lag.ts'
export { type JobOutputs, serveJobs } from './threads/serve-jobs.ts'
export { ThreadPool } from './threads/thread-pool.ts'
export {
  dropStartVariables,
  machineShare,
  processShare,
  shareWith,
  startVariables,
  Thread,
  workerUrl,
} from './threads/thread.ts'
