import type { Recorder } from '../inference/index.ts'
import type { MessageNode } from '../schema/index.ts'
import type { Journal } from './journal.ts'
import type { NodeEntry } from './journal-entry.ts'
import { describeExperts, expertBytes } from './_stored-experts.ts'

/** A session's recorder: puts its nodes into the journal under one attempt of one rollout. */
export class AttemptRecorder implements Recorder {
  readonly #journal: Journal
  readonly #rollout: string
  readonly #attempt: number

  constructor(journal: Journal, rollout: string, attempt: number) {
    this.#journal = journal
    this.#rollout = rollout
    this.#attempt = attempt
  }

  node(node: MessageNode, json: string): void {
    const { call, tool, tokens } = node
    const experts = tokens?.routedExperts
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
      meta:
        call || tool
          ? JSON.stringify({ call, tool, ...(experts && { routedExperts: describeExperts(experts) }) })
          : null,
      ...(tokens && { ids: tokens.ids, logprobs: tokens.logprobs }),
      ...(tokens?.promptIds && { promptIds: tokens.promptIds }),
      ...(tokens?.version !== undefined && { version: tokens.version }),
      ...(experts && { routedExperts: expertBytes(experts) }),
    }
    this.#journal.append(entry)
  }

  durable(): Promise<void> | undefined {
    return this.#journal.durable()
  }
}
