package checks

// list has every check, in the order of reports. A new check is a file of its own and a line here.
var list = []Check{
	// repository
	fileNames,
	componentsPresent,
	metadataPresent,
	defaultTemplate,
	version,
	providerName,
	// metadata
	metadataParse,
	metadataAPIVersion,
	metadataKind,
	seriesPresent,
	seriesDuplicate,
	seriesOrder,
	seriesDropped,
	seriesContractChanged,
	contractKnown,
	// templates
	templateRendered,
	topologyClass,
	templateNamespaceObject,
	templateObjectNamespace,
	templateVariableDocumented,
	// clusterclass
	clusterClassFileName,
	clusterClassVariables,
	clusterClassNamespace,
	clusterClassRefNamespace,
	clusterClassRefResolves,
	clusterClassShared,
}
