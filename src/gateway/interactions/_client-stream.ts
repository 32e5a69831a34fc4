import type { BackendReply, ReplyEvent } from '../../inference/index.ts'
import type { ItemIds } from '../../schema/index.ts'

/** How one streamed reply is written to its client: text of server-sent events, in order. */
export interface ClientStream {
  /** What the reply is called, once that is known. */
  readonly replyId: string | undefined
  /** What the backend called its items, if the client was told so. */
  readonly itemIds?: ItemIds | undefined
  /** Before everything else. */
  start(): string
  /** For one event of the backend's; empty if the client gets nothing for it. */
  event(event: ReplyEvent): string
  /** The reply is complete and recorded: whatever tells the client so. */
  end(reply: BackendReply): string
}
