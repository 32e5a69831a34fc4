import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import { type ContentPart, isJsonList, isJsonObject, type Json, type JsonObject } from '../../../schema/index.ts'

interface AnswerContent {
  readonly content: string | readonly ContentPart[]
  readonly isError: boolean
  readonly structured?: Json
}

/**
 * Reads a result of `tools/call`; undefined if it is no tool result at all. By hand: it is on the path of every call, and an
 * unknown block must not cost the others. Texts and pictures become parts, a plain string where all is text. Content that no
 * model API takes in a tool message (audio, binary resources) is named in words, so that the model knows it was there.
 */
export function answerContent(result: unknown): AnswerContent | undefined {
  if (!isJsonObject(result)) return undefined
  const blocks = result['content']
  const structured = result['structuredContent']
  if (!isJsonList(blocks) && structured === undefined) return undefined
  const parts = isJsonList(blocks) ? blocks.map(partOf) : []
  // A server should repeat its structured answer as text. Not all do.
  if (parts.length === 0 && structured !== undefined) parts.push(text(JSON.stringify(structured)))
  return {
    content: joined(parts),
    isError: result['isError'] === true,
    ...(structured !== undefined && { structured }),
  }
}

function joined(parts: readonly ContentPart[]): string | readonly ContentPart[] {
  const [first] = parts
  if (first === undefined) return ''
  if (parts.length === 1 && first.type === 'text') return first.text
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? texts.join('\n') : parts
}

function partOf(block: Json): ContentPart {
  if (!isJsonObject(block)) return unreadable(block)
  const { type } = block
  if (type === 'text' && typeof block['text'] === 'string') return text(block['text'])
  if (type === 'image') return imagePart(block)
  if (type === 'audio') return text(`[audio, ${stringOf(block['mimeType'], 'of unknown type')}, cannot be shown]`)
  if (type === 'resource') return resourcePart(block['resource'])
  if (type === 'resource_link') return text(linkText(block))
  return unreadable(block)
}

function imagePart({ data, mimeType }: JsonObject): ContentPart {
  if (typeof data !== 'string') return text('[an image without data]')
  return { type: 'image_url', image_url: { url: `data:${stringOf(mimeType, 'image/png')};base64,${data}` } }
}

function resourcePart(resource: Json | undefined): ContentPart {
  if (!isJsonObject(resource)) return text('[a resource without content]')
  const { uri, mimeType, text: inline, blob } = resource
  if (typeof inline === 'string') return text(inline)
  if (typeof blob === 'string' && typeof mimeType === 'string' && mimeType.startsWith('image/')) {
    return imagePart({ data: blob, mimeType })
  }
  return text(
    `[resource ${stringOf(uri, 'without a name')}, ${stringOf(mimeType, 'of unknown type')}, cannot be shown]`,
  )
}

function linkText({ uri, name, title, description, mimeType }: JsonObject): string {
  const called = stringOf(title, stringOf(name, 'resource'))
  const about = [mimeType, description]
    .map((word) => stringOf(word, ''))
    .filter(Boolean)
    .join(', ')
  return `[${called}](${stringOf(uri, '')})${about === '' ? '' : ` (${about})`}`
}

function unreadable(block: Json): ContentPart {
  return text(`[content of an unknown kind: ${JSON.stringify(block).slice(0, 200)}]`)
}

const text = (said: string): ContentPart => ({ type: 'text', text: said })
const stringOf = (value: Json | undefined, otherwise: string): string =>
  typeof value === 'string' && value !== '' ? value : otherwise

/** Whether a value is a JSON-RPC message at all. Its receiver checks its kind and its fields. */
export function isRpcMessage(value: unknown): value is JSONRPCMessage {
  return typeof value === 'object' && value !== null && 'jsonrpc' in value && value.jsonrpc === '2.0'
}

/** JSON-RPC's code for an error of the server's own. */
const internalError = -32_603

/** Servers may give anything as the error, which is then shown as it is; some write `null` beside a result. */
export function rpcErrorOf(error: Json): { readonly code: number; readonly message: string } | undefined {
  if (error === null) return undefined
  const { code, message } = isJsonObject(error) ? error : { message: error }
  return {
    code: typeof code === 'number' ? code : internalError,
    message: typeof message === 'string' ? message : JSON.stringify(message ?? error),
  }
}

/** The longest message of a server that is read, over stdio as over HTTP. */
export const maxMessageBytes = 64 * 1024 * 1024
/** How much is read of a page that explains an error status. */
export const maxErrorBytes = 64 * 1024
