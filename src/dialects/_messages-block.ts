import type { ContentPart, JsonObject } from '../schema/index.ts'
import { imagePart } from './_content.ts'
import { anyText, requiredText, typedObject, type TypedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

/** One block of what a model is told. What is said about caching is left out: prefixes are cached anyway. */
export function readBlock(block: TypedObject, at: string, untranslatable: Untranslatable): ContentPart {
  if (block.type === 'text') return { type: 'text', text: anyText(block, 'text', `${at}.`) }
  const image = block.type === 'image' ? readImage(block, at) : undefined
  if (image) return image
  untranslatable.add(`${at}.type ${block.type}`)
  return { type: 'other', api: 'messages', value: withoutCaching(block) }
}

/** Clients move the marks for caching from turn to turn: with them, a repeated block would not be the same one. */
export function withoutCaching({ cache_control: _left, ...block }: TypedObject): JsonObject {
  return block
}

/** Undefined for a source that only Anthropic's server can open. */
function readImage(block: TypedObject, at: string): ContentPart | undefined {
  const source = typedObject(block['source'], `${at}.source`)
  const place = `${at}.source.`
  if (source.type === 'url') return imagePart(requiredText(source, 'url', place))
  if (source.type !== 'base64') return undefined
  const mediaType = requiredText(source, 'media_type', place)
  return imagePart(`data:${mediaType};base64,${requiredText(source, 'data', place)}`)
}
