import type { MessageNode } from '../../../src/schema/index.ts'
import type { RandomSession } from './random-session.ts'

/** Rows made the plain way, by looking at everything again for each of them. To compare with. */
export interface NaiveInteraction {
  readonly seq: number
  readonly parent: number | null
  readonly reward: number | null
  readonly return: number | null
  readonly messages: readonly unknown[]
  /** The version of each id. */
  readonly versions: readonly (string | null)[]
}

export interface NaiveRow {
  readonly last: number
  readonly samples: readonly number[]
  readonly ids: readonly number[]
  readonly sampledBy: readonly (number | null)[]
}

const isComplete = (node: MessageNode): boolean => node.sampled && node.call !== undefined

export class NaiveRows {
  readonly #session: RandomSession
  readonly #discount: number
  /** The first message of the tree with the longest branch. */
  readonly mainRoot: number | undefined

  constructor(session: RandomSession, discount: number) {
    this.#session = session
    this.#discount = discount
    this.mainRoot = this.#longestRoot()
  }

  rootOf(node: MessageNode): number | undefined {
    return this.#ancestors(node)[0]?.seq
  }

  #longestRoot(): number | undefined {
    const sizes = this.#complete().map((node) => {
      const turns = this.#ancestors(node).filter(isComplete).length
      const { input = 0, output = 0 } = node.call?.usage ?? {}
      return { root: this.rootOf(node) ?? 0, turns, tokens: input + output }
    })
    sizes.sort((one, other) => other.turns - one.turns || other.tokens - one.tokens || one.root - other.root)
    return sizes[0]?.root
  }

  /** How many interactions with tokens follow another one, how many of those do not begin with it, and how many tokens that concerns. */
  turns(): { readonly laterTurns: number; readonly driftedTurns: number; readonly driftedTokens: number } {
    const usable = (each: MessageNode): boolean => isComplete(each) && each.tokens !== undefined
    const later = this.#session.nodes.filter((node) => usable(node) && this.parentOf(node, usable))
    const drifted = later.filter((node) => !this.#before(node))
    const tokens = drifted.map((node) => {
      const parent = this.parentOf(node, usable)
      const before = parent ? seen(parent) : []
      const prompt = node.tokens?.promptIds ?? []
      const same = before.findIndex((id, at) => id !== prompt[at])
      return before.length - same
    })
    const driftedTokens = tokens.reduce((sum, count) => sum + count, 0)
    return { laterTurns: later.length, driftedTurns: drifted.length, driftedTokens }
  }

  interactions(): NaiveInteraction[] {
    return this.#complete().map((node) => {
      const parent = this.parentOf(node, isComplete)
      return {
        seq: node.seq,
        parent: parent?.seq ?? null,
        reward: this.#reward(node),
        return: this.#return(node),
        messages: this.#ancestors(node)
          .filter(({ seq }) => seq > (parent?.seq ?? -1))
          .map(({ message }) => message),
        versions: versionsOf(node),
      }
    })
  }

  /** One for each interaction with tokens that no other goes on from. */
  merged(): NaiveRow[] {
    const usable = this.#complete().filter((node) => node.tokens)
    return usable
      .filter((node) => !usable.some((other) => this.#before(other)?.seq === node.seq))
      .map((last) => {
        const samples: MessageNode[] = []
        for (let node: MessageNode | undefined = last; node; node = this.#before(node)) samples.unshift(node)
        const ids = seen(last)
        const sampledBy: (number | null)[] = ids.map(() => null)
        for (const { seq, tokens } of samples) {
          tokens?.ids.forEach((_, index) => (sampledBy[(tokens.promptIds?.length ?? 0) + index] = seq))
        }
        return { last: last.seq, samples: samples.map(({ seq }) => seq), ids, sampledBy }
      })
  }

  /** The interaction whose prompt and reply this one's prompt begins with, if it is the one before it. */
  #before(node: MessageNode): MessageNode | undefined {
    const parent = this.parentOf(node, (each) => isComplete(each) && each.tokens !== undefined)
    if (!parent) return undefined
    const start = seen(parent)
    const prompt = Array.from(node.tokens?.promptIds ?? []).slice(0, start.length)
    return JSON.stringify(prompt) === JSON.stringify(start) ? parent : undefined
  }

  parentOf(node: MessageNode, fits: (node: MessageNode) => boolean): MessageNode | undefined {
    return this.#ancestors(node).findLast((each) => each.seq !== node.seq && fits(each))
  }

  #complete(): MessageNode[] {
    return this.#session.nodes.filter(isComplete)
  }

  /** From the root to the node itself. */
  #ancestors(node: MessageNode): MessageNode[] {
    const before = this.#session.nodes.find(({ seq }) => seq === node.parent)
    return before ? [...this.#ancestors(before), node] : [node]
  }

  #children(node: MessageNode): MessageNode[] {
    return this.#complete().filter((other) => this.parentOf(other, isComplete)?.seq === node.seq)
  }

  #reward(node: MessageNode): number | null {
    const said = (wanted: number | null) => this.#session.rewards.find((reward) => reward.node === wanted)?.value
    const own = said(node.seq)
    const isLast = this.#children(node).length === 0 && this.rootOf(node) === this.mainRoot
    const shared = isLast ? said(null) : undefined
    return own === undefined && shared === undefined ? null : (own ?? 0) + (shared ?? 0)
  }

  #return(node: MessageNode): number | null {
    const later = this.#children(node).flatMap((child) => this.#return(child) ?? [])
    const reward = this.#reward(node)
    if (later.length === 0) return reward
    return (reward ?? 0) + this.#discount * (later.reduce((sum, value) => sum + value, 0) / later.length)
  }
}

function seen({ tokens }: MessageNode): number[] {
  return [...(tokens?.promptIds ?? []), ...(tokens?.ids ?? [])]
}

export function versionsOf({ tokens }: MessageNode): (string | null)[] {
  if (!tokens) return []
  const { versionSpans, version = null } = tokens
  return Array.from(tokens.ids, (_, index) => versionSpans?.findLast(({ from }) => from <= index)?.version ?? version)
}
