/** W3C trace context, version 00, sampled: `00-<trace id>-<span id>-01`. */
export function traceparentOf(traceId: string, spanId: string): string {
  return `00-${traceId}-${spanId}-01`
}

/** The span id of a header that `traceparentOf` wrote. */
export function spanIdOf(traceparent: string): string {
  return traceparent.slice(36, 52)
}
