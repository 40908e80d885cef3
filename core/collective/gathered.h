#pragma once

#include "base/collective.h"
#include "collective/communicator.h"
#include "collective/hierarchy/hierarchy.h"

// Small allreduces of which every member has everybody's input already (CollectiveSpec::gathered).
// What is left to do is arithmetic, at once. It is that of the allreduce that exchanges the data,
// operation by operation, so both give the same bits.
namespace hvd {

// As MakeWindowAllreduce: all members in rank order.
void CombineOnHost(const CollectiveSpec& spec, int members);

// As MakeLinkAllreduce, by an exchange: a ring costs more for so little.
void CombineOverLinks(const Communicator& comm, const CollectiveSpec& spec);

// As MakeHierarchicalAllreduce: the members of each host, then the hosts.
void CombineOnHosts(const Hierarchy& hierarchy, const CollectiveSpec& spec);

}  // namespace hvd
