import { hash } from 'node:crypto'
import { textOf, type CallRecord, type MessageNode } from '../../schema/index.ts'

/** Which tree of a session is its main one. */
export type MainTree = 'longest' | 'first' | 'all'

/** Facts about the tree of a row, by which a trainer tells an agent from its side calls. */
export interface TreeFacts {
  /** Whether the row is of the session's main tree. Only such rows get the session's reward. */
  readonly main: boolean
  readonly tree: {
    /** The number of the tree's first message. */
    readonly root: number
    /** The SHA-256 of the first message's text, in hex; null if that message is no system prompt. */
    readonly system: string | null
    /** The model and the functions of the first request. The functions are null in records of earlier versions. */
    readonly model: string
    readonly tools: readonly string[] | null
    /** Requests with a reply, complete or lost. */
    readonly requests: number
  }
}

/** The messages of a session that go back to one first message, with a count of the replies among them. */
export class Tree {
  readonly #root: number
  readonly #system: string | null
  #first: Pick<CallRecord, 'model' | 'tools'> | undefined
  #requests = 0
  /** The complete replies of the longest branch, and the tokens of its last prompt and reply. */
  #turns = 0
  #tokens = 0

  constructor({ seq, message }: MessageNode) {
    this.#root = seq
    const isSystem = message.role === 'system' || message.role === 'developer'
    this.#system = isSystem ? hash('sha256', textOf(message)) : null
  }

  /** Counts a reply. `turns`: the number of complete replies up to and including it; 0 for a lost one. */
  add(call: Pick<CallRecord, 'model' | 'tools' | 'usage'>, turns: number): void {
    this.#first ??= call
    this.#requests += 1
    const tokens = call.usage.input + call.usage.output
    if (turns < this.#turns || (turns === this.#turns && tokens <= this.#tokens)) return
    this.#turns = turns
    this.#tokens = tokens
  }

  /** Whether it has a reply, complete or lost. */
  get isUsed(): boolean {
    return this.#requests > 0
  }

  get hasCompleteReply(): boolean {
    return this.#turns > 0
  }

  isLongerThan(other: Tree): boolean {
    return this.#turns === other.#turns ? this.#tokens > other.#tokens : this.#turns > other.#turns
  }

  /**
   * Whether the tree begins as the other one does: a client that summarises its history may begin a new tree. A tree without a
   * system prompt and functions does not say whose it is, so it never does.
   */
  beginsLike(other: Tree): boolean {
    const names = namesIn(this)
    if (this.#system === null && names === '[]') return false
    const isSameModel = this.#first?.model === other.#first?.model
    return this.#system === other.#system && isSameModel && names === namesIn(other)
  }

  get tools(): readonly string[] | null {
    return this.#first?.tools ?? null
  }

  facts(main: boolean): TreeFacts {
    const model = this.#first?.model ?? ''
    return {
      main,
      tree: { root: this.#root, system: this.#system, model, tools: this.tools, requests: this.#requests },
    }
  }
}

/** The trees that a session's reward is for. */
export function mainTrees(trees: readonly Tree[], rule: MainTree): ReadonlySet<Tree> {
  if (rule === 'all') return new Set(trees)
  const answered = trees.filter(({ hasCompleteReply }) => hasCompleteReply)
  const [first, ...others] = answered.length > 0 ? answered : trees
  if (!first) return new Set()
  const main =
    rule === 'first' ? first : others.reduce((longest, tree) => (tree.isLongerThan(longest) ? tree : longest), first)
  return new Set(trees.filter((tree) => tree === main || tree.beginsLike(main)))
}

/** The names of a tree's functions, in one order: some clients list them in another one each time. */
function namesIn({ tools }: Tree): string {
  return JSON.stringify(tools?.toSorted() ?? [])
}
