export { type EpisodeItem, EpisodeItems, episodeItems, type EpisodeMessage, itemPieces } from './episode-items.ts'
export { type GymRequest, readRow } from './read-row.ts'
