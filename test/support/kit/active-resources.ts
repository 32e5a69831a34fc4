import { setTimeout as pause } from 'node:timers/promises'

const looks = 200
const lookEveryMs = 20

/** What keeps this process alive, by kind: timers, sockets, ports to threads. */
export function activeResources(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) {
    if (kind === 'Timeout' || kind === 'MessagePort' || /^T(CP|LS)/.test(kind)) counts[kind] = (counts[kind] ?? 0) + 1
  }
  return counts
}

/**
 * The kinds of which there are more than `before`, once things had time to settle: sockets take a moment to close, and
 * the test runner sets timers of its own. Not `vi.waitFor`, whose timer would be among what is counted.
 */
export async function leftSince(before: Record<string, number>): Promise<string[]> {
  let left = moreThan(before)
  for (let look = 0; look < looks && left.length > 0; look += 1) {
    await pause(lookEveryMs)
    left = moreThan(before)
  }
  return left
}

function moreThan(before: Record<string, number>): string[] {
  return Object.entries(activeResources()).flatMap(([kind, count]) =>
    count > (before[kind] ?? 0) ? [`${kind} ${count}`] : [],
  )
}
