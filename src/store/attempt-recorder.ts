import type { Recorder } from '../inference/index.ts'
import { bytesOf } from '../kit/index.ts'
import type { MessageNode } from '../schema/index.ts'
import type { Journal } from './journal.ts'
import type { NodeEntry } from './journal-entry.ts'
import { PromptBases, restAfter } from './_prompt-bases.ts'
import { describeExperts } from './_stored-experts.ts'

/** A session's recorder: puts its nodes into the journal under one attempt of one rollout. */
export class AttemptRecorder implements Recorder {
  readonly #journal: Journal
  readonly #rollout: string
  readonly #attempt: number
  readonly #bases = new PromptBases()

  constructor(journal: Journal, rollout: string, attempt: number) {
    this.#journal = journal
    this.#rollout = rollout
    this.#attempt = attempt
  }

  node(node: MessageNode, json: string): void {
    const { tokens } = node
    const experts = tokens?.routedExperts
    const promptIds = tokens?.promptIds
    const base = promptIds && this.#bases.find(promptIds)
    this.#bases.add(node, base)
    const entry: NodeEntry = {
      kind: 'node',
      rollout: this.#rollout,
      attempt: this.#attempt,
      seq: node.seq,
      parent: node.parent,
      hash: node.hash,
      message: json,
      sampled: node.sampled,
      at: node.at,
      meta: metaOf(node, base?.seq),
      ...(tokens && { ids: tokens.ids, logprobs: tokens.logprobs }),
      ...(promptIds && { promptIds: base ? restAfter(base, promptIds) : promptIds }),
      ...(tokens?.version !== undefined && { version: tokens.version }),
      ...(experts && { routedExperts: bytesOf(experts.experts) }),
    }
    this.#journal.append(entry)
  }

  synced(): Promise<void> | undefined {
    return this.#journal.synced()
  }
}

/** The JSON of a `NodeMeta`; undefined fields are left out. */
function metaOf({ call, tool, tools, discarded, tokens }: MessageNode, promptAfter: number | undefined): string | null {
  const versionSpans = tokens?.versionSpans
  const experts = tokens?.routedExperts
  const routedExperts = experts && describeExperts(experts)
  if (!call && !tool && !tools && !discarded && !versionSpans && !experts && promptAfter === undefined) return null
  return JSON.stringify({ call, tool, tools, discarded, versionSpans, promptAfter, routedExperts })
}
