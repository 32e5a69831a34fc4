import { messageJson } from '../inference/index.ts'
import { hash32 } from '../kit/index.ts'
import type { Message } from '../schema/index.ts'

/**
 * Where in its parent a child begins: after which turn, and in which of that turn's tool calls, if one asks for it. The place is
 * part of the child's id: a parent that answers an earlier call from its journal does not start that call's children, and the
 * children of a later call must not be taken for them.
 */
export function childPlace(turn: number, call: number | undefined): string {
  if (call === undefined) return `t${turn}`
  // A call that an agent made up itself has no number among those of the reply.
  return call < 0 ? `t${turn}c` : `t${turn}c${call}`
}

/** The turn of the rollout after which a child, or its uppermost parent, began. `key` is the child's id without the rollout's. */
export function turnOf(key: string): number {
  return Number.parseInt(key.slice('.t'.length), 10)
}

/** The id depends on what the child is asked, not on when: a resumed parent finds it in whatever order children run. */
export function childId(
  parent: string,
  place: string,
  prompt: readonly Message[],
  /** How often each id was given already. */
  given: Map<string, number>,
): string {
  const base = `${parent}.${place}-${hash32(...prompt.map(messageJson)).toString(36)}`
  const earlier = given.get(base) ?? 0
  given.set(base, earlier + 1)
  return earlier === 0 ? base : `${base}-${earlier + 1}`
}
