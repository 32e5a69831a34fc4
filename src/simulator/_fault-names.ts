/**
 * The faults that exclude each other, in the order in which they divide the unit interval: a new fault goes to the end, so that a
 * seed keeps the faults it had.
 */
export const exclusiveFaults = [
  'rateLimit',
  'serverError',
  'cut',
  'malformed',
  'hang',
  'kill',
  'quietEnd',
  'stall',
  'midstreamError',
] as const

export type ExclusiveFault = (typeof exclusiveFaults)[number]

/** The faults of a reply that has begun; the others refuse it. */
export type ReplyFault = Exclude<ExclusiveFault, 'rateLimit' | 'serverError'>

/** The faults that a caller may force upon one request, whatever the options say. */
const forcedFaults = [...exclusiveFaults, 'slow', 'trickle', 'overload'] as const

export type ForcedFault = (typeof forcedFaults)[number]

export const forcedFaultList = forcedFaults.join(', ')

/** The fault of this name, written `midstreamError` or `midstream-error`. */
export function forcedFault(name: string): ForcedFault | undefined {
  const written = name.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
  return forcedFaults.find((fault) => fault === written)
}
